"""Lines as people and agents type them, each with its secret, or with none.

A line is a template and a value. ``{}`` is where the value stands. Values are put together here, so
that no file of this repository holds a secret.
"""

import base64
from typing import NamedTuple

from tests.unit import redaction_corpus_second as second
from tests.unit import redaction_corpus_third as third
from tests.unit.secret_samples import TOKENS, mixed


class Line(NamedTuple):
    """A line of the corpus; ``secret`` is what must not be left of it, None where there is none."""

    category: str
    text: str
    secret: str | None


PLAIN = "correct" + "horse"  # letters only, as a person chooses a password
SHORT = "hun" + "ter2"
STRONG = "Xk9" + "#vQ2!mZ"
TOKEN = mixed(32)
HEX = mixed(40, "0123456789abcdef")
PADDED = base64.b64encode(b"robot:" + SHORT.encode()).decode()
GITHUB = dict(TOKENS)["github"]

SECRETS: dict[str, list[tuple[str, str]]] = {
    "environment": [
        ("DB_PASS={}", PLAIN),
        ("export DB_PASS={}", SHORT),
        ("SMTP_PASS='{}' ./send", STRONG),
        ("REDISCLI_AUTH={} redis-cli ping", PLAIN),
        ("STRIPE_KEY={}", TOKEN),
        ("OPENAI_KEY={}", TOKEN),
        ("JWT_KEY={}", TOKEN),
        ("docker run -e MYSQL_PWD={} mysql", SHORT),
        ("docker run -e POSTGRES_PASSWORD={} postgres", PLAIN),
        ("set -x API_TOKEN {}", TOKEN),
        ("set -gx GITHUB_TOKEN {}", TOKEN),
        ("setenv API_TOKEN {}", TOKEN),
        ("setx API_TOKEN {}", TOKEN),
        ("set DB_PASSWORD={}", PLAIN),
        ('$env:API_TOKEN = "{}"', TOKEN),
        ("ENV DB_PASSWORD {}", SHORT),
        ("heroku config:set SECRET_KEY_BASE={}", HEX),
        ("LDAP_BIND_PASS={}", PLAIN),
        ("APP_KEY=base64:{}=", mixed(43)),
        ("kubectl create secret generic db --from-literal=password={}", PLAIN),
        ("SESSION_SECRET={}", PLAIN + PLAIN),
    ],
    "options": [
        ("tool --pass {}", SHORT),
        ("tool --pass={}", PLAIN),
        ("sshpass -p {} ssh me@host", PLAIN),
        ("sshpass -p{} ssh me@host", SHORT),
        ("sshpass -p '{}' scp a me@host:", STRONG),
        ("docker login -u me -p {} registry.example", PLAIN),
        ("podman login -u me -p {} registry.example", SHORT),
        ("mysql -u root -p{} app", PLAIN),
        ("mysqldump -uroot -p'{}' app > a.sql", STRONG),
        ("redis-cli -h cache -a {} ping", PLAIN),
        ("unzip -P {} a.zip", PLAIN),
        ("zip -P {} a.zip b", SHORT),
        ("7z x -p{} a.7z", PLAIN),
        ("openssl rsa -in a.pem -passin pass:{}", PLAIN),
        ("openssl enc -aes-256-cbc -pass pass:{} -in a", SHORT),
        ("openssl pkcs12 -export -passout pass:{} -in a", PLAIN),
        ("openssl enc -aes-256-cbc -k {} -in a", SHORT),
        ("keytool -list -storepass {}", PLAIN),
        ("keytool -genkey -keypass {} -alias a", SHORT),
        ("ldapsearch -D cn=admin -w {} -b dc=x", PLAIN),
        ("sqlcmd -S db -U sa -P {} -Q 'select 1'", STRONG),
        ("az login --service-principal -u app -p {} --tenant t", TOKEN),
        ("mosquitto_pub -u me -P {} -t a -m b", PLAIN),
        ("htpasswd -bc users me {}", PLAIN),
        ("curl --user me:{} https://x.example", PLAIN),
        ("curl -ume:{} https://x.example", SHORT),
        ("wget --http-password={} https://x.example", PLAIN),
        ("smbclient //host/share -U me%{}", PLAIN),
        ("echo {} | docker login -u me --password-stdin", TOKEN),
        ("echo '{}' | sudo -S make install", PLAIN),
        ("echo me:{} | chpasswd", PLAIN),
        ("echo {} | sudo -k -S ls", SHORT),
        ("vault login {}", TOKEN),
        ("gpg --batch --passphrase {} -d a.gpg", PLAIN),
        ("mongosh -u me -p {} db", PLAIN),
        ("lftp -u me,{} sftp://host", PLAIN),
        ("tool --api-key {}", TOKEN),
        ("tool --auth-token={}", TOKEN),
        ("gh secret set DEPLOY_KEY --body '{}'", TOKEN),
    ],
    "settings of programs": [
        ("aws configure set aws_secret_access_key {}", mixed(40)),
        ("npm config set //registry.example/:_authToken {}", TOKEN),
        ("//registry.example/:_authToken={}", TOKEN),
        ("_auth={}", PADDED),
        ('{{"auths": {{"registry.example": {{"auth": "{}"}}}}}}', PADDED),
        ("machine example.org login me password {}", PLAIN),
        ("machine example.org\n  login me\n  password {}", SHORT),
        ("default login me password {}", PLAIN),
        ("poetry config pypi-token.pypi {}", TOKEN),
        ("poetry config http-basic.private me {}", PLAIN),
        ("git config --global github.token {}", TOKEN),
        ("requirepass {}", SHORT),
        ("db:5432:app:me:{}", ""),
    ],
    "files": [
        ('{{"pass": "{}"}}', PLAIN),
        ('{{"db_pass": "{}"}}', SHORT),
        ('pass = "{}"', SHORT),
        ("password: >-\n  {}\n", PLAIN),
        ("db:\n  password: |\n    {}\n  user: me\n", SHORT),
        ('<add key="Password" value="{}" />', PLAIN),
        ('<property name="db.password" value="{}"/>', PLAIN),
        ('<entry key="api_token">{}</entry>', TOKEN),
        ('<connection password="{}" user="me"/>', PLAIN),
        ("spring.datasource.password={}", PLAIN),
        ("password = {}", SHORT),
        ('client_secret = "{}"', PLAIN),
        ("Server=db;User Id=sa;Password={};", STRONG),
        ("Server=db;Uid=sa;Pwd={};", PLAIN),
        ("AccountKey={}==;EndpointSuffix=x", mixed(86)),
        ("SharedAccessKey={}=", mixed(43)),
        ("jdbc:oracle:thin:scott/{}@db:1521/x", PLAIN),
        ('password = "{}"', PLAIN),
        ("  stringData:\n    password: {}", SHORT),
        ("wpa_passphrase={}", PLAIN),
        ("psk={}", PLAIN),
        ('psk="{}"', PLAIN),
    ],
    "addresses": [
        ("GET /x?page=1&token={}", PLAIN),
        ("https://x.example/a?password={}", PLAIN),
        ("https://x.example/a?user=me&pwd={}&b=1", PLAIN),
        ("https://x.example/a?api_key={}", TOKEN),
        ("https://x.blob.example/a?sv=2023&sig={}%3D", mixed(43)),
        ("https://s3.example/a?X-Amz-Signature={}", HEX),
        ("https://s3.example/a?X-Amz-Security-Token={}", mixed(80)),
        ("https://storage.example/a?X-Goog-Signature={}", HEX),
        ("redirect=https%3A%2F%2Fx.example%3Fpassword%3D{}%26b%3D1", PLAIN),
        ("body=user%3Dme%26password%3D{}", SHORT),
        ("redis://:{}@cache:6379/0", PLAIN),
        ("amqp://me:{}@queue/", SHORT),
        ("otpauth://totp/me?secret={}&issuer=x", mixed(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
        ("mongodb+srv://me:{}@cluster.example", STRONG.replace("#", "_")),
    ],
    "SQL": [
        ("ALTER USER me WITH PASSWORD '{}'", PLAIN),
        ("CREATE ROLE me LOGIN ENCRYPTED PASSWORD '{}'", SHORT),
        ("CREATE USER me IDENTIFIED BY '{}'", PLAIN),
        ("ALTER USER me IDENTIFIED WITH mysql_native_password BY '{}'", STRONG),
        ("SET PASSWORD FOR me = PASSWORD('{}')", PLAIN),
        ("CREATE LOGIN me WITH PASSWORD = '{}'", PLAIN),
        ('create user me identified by "{}"', PLAIN),
        ("alter user me identified by {}", PLAIN),
    ],
    "code": [
        ('requests.get(url, auth=("me", "{}"))', PLAIN),
        ('client.login("me", "{}")', PLAIN),
        ('password := "{}"', PLAIN),
        ("const apiKey = '{}';", TOKEN),
        ('{{"password\\u003d": 1, "q": "token\\u003d{}"}}', TOKEN),
        ('"body": "user\\u003dme\\u0026password\\u003d{}"', SHORT),
        ('Environment.SetEnvironmentVariable("API_TOKEN", "{}")', TOKEN),
        ('os.environ.setdefault("DB_PASSWORD", "{}")', PLAIN),
        ("System.setProperty('db.password', '{}')", PLAIN),
        ('ConvertTo-SecureString "{}" -AsPlainText -Force', STRONG),
        ("PASSWORD=$(echo {})", ""),
    ],
    "headers": [
        ("PRIVATE-TOKEN: {}", TOKEN),
        ("curl -H 'X-Auth-Token: {}' https://x.example", TOKEN),
        ("curl -H 'Api-Key: {}' https://x.example", TOKEN),
        ("Authorization: Basic {}", PADDED),
        ("authorization: token {}", TOKEN),
        ("X-Vault-Token: {}", TOKEN),
    ],
    "said": [
        ("the password is {}", SHORT),
        ("Password for me is {}.", STRONG),
        ("my api key is {}", TOKEN),
        ("Enter password: {}", SHORT),
        ("use token {} for the api", TOKEN),
        ("login: me / password: {}", STRONG),
    ],
    "keys": [
        (
            "PuTTY-User-Key-File-2: ssh-rsa\nEncryption: none\nComment: me\nPublic-Lines: 1\nAAAA"
            "\nPrivate-Lines: 2\n{}\nabcd1234==\nPrivate-MAC: " + HEX,
            mixed(64),
        ),
        ('{{"kty": "RSA", "n": "x", "d": "{}"}}', mixed(86)),
    ],
    "disguised": [
        ("found {}", GITHUB[:10] + "\u200b" + GITHUB[10:]),
        ("found {}", GITHUB[:10] + "\x1b[31m" + GITHUB[10:] + "\x1b[0m"),
        ("found {}", GITHUB[:12] + "\u00ad" + GITHUB[12:]),
        ("password=\x1b[1m{}\x1b[0m", SHORT),
        ("echo {} | base64 -d", base64.b64encode(GITHUB.encode()).decode()),
        ("data: {}", base64.b64encode(f"token: {GITHUB}\n".encode()).decode()),
        ("data: {}", base64.urlsafe_b64encode(f"x {GITHUB}".encode()).decode().rstrip("=")),
    ],
}

HARMLESS: dict[str, list[str]] = {
    "code": [
        "for key in keys: print(key)",
        'token = tokens[0]; kind = token.kind  # "(" or ")"',
        "def authenticate(user, password): ...",
        "self.signature = signature(function)",
        "if first_pass: second_pass = True",
        'render_pass = "shadow"',
        "primary_key=True, foreign_key='users.id'",
        "sort_key = (row['created_at'], row['id'])",
        "parser.add_argument('--password', help='ask for a password')",
        'auth = "basic"',
        "auth: true",
        "sig = inspect.signature(f)",
        "assert result.key == expected.key",
        "cache_key = f'{user}:{page}'",
        "CACHE_KEY=users",
        "PARTITION_KEY=created_at",
        'headers["X-Request-Id"] = request_id',
        "password = getpass.getpass()",
        "const token = await getToken();",
        'pass: "all 12 tests pass"',
        "auth=(user, password)",
        "client.login(user, password)",
        '{"key": "value", "token": null}',
        '<add key="Timeout" value="30" />',
        '<property name="title" value="The password page"/>',
        '{"kty": "RSA", "e": "AQAB"}',
        "secret: true",
        "d = {'a': 1}",
    ],
    "commands": [
        "mkdir -p src/components",
        "cp -a build dist",
        "ssh -p 2222 me@host",
        "docker run -p 8080:80 nginx",
        "mysql -u root -p app",
        "mysql -u root -p",
        "psql -h db -p 5432 -U me",
        "unzip -p a.zip b.txt",
        "redis-cli -h cache -p 6379 info",
        "ls -a | grep token",
        "git config user.name 'A Person'",
        "git config --global credential.helper store",
        "docker login -u me registry.example",
        "docker login -u me -p $TOKEN registry.example",
        "sshpass -f file ssh me@host",
        "sshpass -e ssh me@host",
        "openssl rsa -in a.pem -passin env:PASS",
        "openssl rsa -in a.pem -passin file:pass.txt",
        "set -x",
        "set -euo pipefail",
        "npm config set registry https://registry.example",
        "aws configure set region eu-central-1",
        "pytest -p no:cacheprovider -k password",
        "7z x a.7z -p",
        "make -j8 test PASS=1",
        "grep -rn 'password' src | head -20",
        "echo done | tee log",
        "curl -u me https://x.example",
        "vault login -method=oidc",
        "htpasswd -c users me",
        "gpg --passphrase-fd 0 -d a.gpg",
        "kubectl get secret db -o yaml",
        "export PATH=$HOME/bin:$PATH",
    ],
    "prose": [
        "The password is required.",
        "the password is wrong, so the login fails",
        "Set the password field to readonly and the token to null.",
        "a machine login page password reset",
        "All tests pass: 12 of 12.",
        "pass 2 of 3: 1204 files",
        "The key is that nobody waits for the lock.",
        "identified by its name",
        "Users are identified by id, and by their email.",
        "Enter password:",
        "This token is renewed by activity.",
        "the secret is out",
        "use tokens for the api, not passwords",
        "See docs/security.md#password for the rules.",
        "bypass: skip the check; compass=north",
    ],
    "results": [
        "PASS: tests/test_login.py::test_password",
        "pass=12 fail=0 skip=3",
        "12 passed, 3 skipped in 4.56s",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
        "https://x.example/a?page=2&sort=key",
        "https://x.example/a?token=&page=2",
        "https://x.example/reset?password=$PASSWORD",
        "GET /x?next_page_token=abc12345",
        "sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP==",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
        "\x1b[32mPASSED\x1b[0m tests/test_token.py",
        "password: >-\n",
        "total 48 drwxr-xr-x 2 me me 4096 Jan  5 12:00 token",
    ],
}


def corpus() -> list[Line]:
    """Return every line, those that hold a secret first.

    Two parts were written by others, who had not seen the redactor.
    """
    found = [
        Line(category, template.format(value), value)
        for half in (SECRETS, second.SECRETS, third.SECRETS)
        for category, lines in half.items()
        for template, value in lines
        if value
    ]
    return found + [
        Line(category, text, None)
        for half in (HARMLESS, second.HARMLESS, third.HARMLESS)
        for category, lines in half.items()
        for text in lines
    ]
