"""The OpenRPC document, generated from the request Structs."""

import functools
import inspect
from typing import Any

import msgspec

from .. import __version__
from ..protocol.errors import KINDS
from ..protocol.methods import METHODS
from ..protocol.param_docs import meaning
from ..protocol.records import ProgressNotification
from ..protocol.request import Request, positional_fields, result_type
from ..protocol.requests.system import OpenRpc

OPENRPC_VERSION = "1.3.2"
_REFERENCE = "#/components/schemas/{name}"


@functools.cache
def document() -> OpenRpc:
    """Return the description of every method, its parameters, result and errors."""
    requests = list(METHODS.values())
    results = [result_type(request) for request in requests]
    references, schemas = msgspec.json.schema_components(
        [*requests, *results, ProgressNotification], ref_template=_REFERENCE
    )
    own = [reference["$ref"].rpartition("/")[2] for reference in references[: len(requests)]]
    methods = [
        _method(request, schemas[name], result)
        for request, name, result in zip(requests, own, references[len(requests) : -1], strict=True)
    ]
    for name in own:  # each is spelled out as its method's parameters
        del schemas[name]
    errors = {
        cls.kind: {"code": cls.code, "message": inspect.getdoc(cls) or cls.kind}
        for cls in KINDS.values()
    }
    return OpenRpc(
        openrpc=OPENRPC_VERSION,
        info={"title": "fleetd", "version": __version__},
        methods=methods,
        components={"schemas": schemas, "errors": errors},
    )


def _method(
    request: type[Request[Any]], schema: dict[str, Any], result: dict[str, Any]
) -> dict[str, Any]:
    description = inspect.getdoc(request) or ""
    summary, _, _ = description.partition("\n")
    return {
        "name": request.method,
        "summary": summary,
        "description": description,
        "paramStructure": "either",
        "params": [
            {
                "name": name,
                "description": meaning(request.method, name),
                "required": name in schema.get("required", ()),
                "schema": schema["properties"][name],
            }
            # Positional parameters in their order, then those that go by name only.
            for name in dict.fromkeys(
                [*positional_fields(request), *request.__struct_encode_fields__]
            )
        ],
        "result": {"name": "result", "schema": result},
        "errors": [{"$ref": f"#/components/errors/{cls.kind}"} for cls in KINDS.values()],
    }
