"""Certificates of a test's own authorities, made with openssl; must not know any server."""

import subprocess
from pathlib import Path

DAYS = "30"


class Authority:
    """Signs certificates; ``certificate`` is the file with its own."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory / name
        self._directory.mkdir()
        self.certificate = self._directory / "ca.crt"
        self._key = self._directory / "ca.key"
        _openssl(
            *("req", "-x509", "-nodes", "-days", DAYS, "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate for a name and of the certificate's key."""
        key, request, made, more = (
            self._directory / f"{name}.{ending}" for ending in ("key", "csr", "crt", "ext")
        )
        more.write_text(f"subjectAltName=DNS:{name}\n")
        _openssl(
            *("req", "-new", "-nodes", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-days", DAYS, "-in", str(request), "-out", str(made)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-extfile", str(more)),
        )
        key.chmod(0o600)
        return made, key


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
