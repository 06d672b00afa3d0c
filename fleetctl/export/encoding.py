"""Spans in the two encodings of OTLP: JSON, one request per line, and protobuf.

Both are whole ``ExportTraceServiceRequest`` messages. Concatenated protobuf messages are one
message, so a file of them is read as a whole.
"""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fleetd.protocol.errors import InvalidState

from ..client.plain_json import dumps
from ..integrations.mcp_extra import install_command, requirement
from .spans import Span, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

SERVICE, SCOPE, SCOPE_VERSION = "fleetd", "fleetctl.export", "1"
_NS = 1_000_000
_REQUIRED = "opentelemetry-proto>=1.28"
_INTERNAL, _OK, _ERROR = 1, 1, 2


class Encoding(Protocol):
    """One of the two encodings."""

    content_type: str

    def encode(self, spans: Sequence[Span]) -> bytes:
        """Return spans as one request."""
        ...

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """Return how many spans a collector rejected, and its words."""
        ...


class Json:
    """OTLP as JSON: IDs in hexadecimal, 64-bit numbers as strings."""

    content_type = "application/json"

    def encode(self, spans: Sequence[Span]) -> bytes:
        """Return spans as one request, in one line."""
        document = {
            "resourceSpans": [
                {
                    "resource": {"attributes": _attributes({"service.name": SERVICE})},
                    "scopeSpans": [
                        {
                            "scope": {"name": SCOPE, "version": SCOPE_VERSION},
                            "spans": [_span(span) for span in spans],
                        }
                    ],
                }
            ]
        }
        return dumps(document).encode() + b"\n"

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """Return how many spans a collector rejected, and its words."""
        # Imported here: only an export that was sent has an answer.
        import json

        try:
            partial = json.loads(answer)["partialSuccess"]
            return int(partial.get("rejectedSpans", 0)), str(partial.get("errorMessage", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return 0, ""


def _span(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "parentSpanId": span.parent_id.hex(),
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_ms * _NS),
        "endTimeUnixNano": str(span.end_ms * _NS),
        "attributes": _attributes(span.attributes),
        "events": [
            {
                "timeUnixNano": str(event.at_ms * _NS),
                "name": event.name,
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ],
        "droppedEventsCount": span.dropped_events,
        "status": _status(span),
    }
    return {name: value for name, value in found.items() if value not in ("", [], {}, 0)}


def _status(span: Span) -> dict[str, Any]:
    if span.error is not None:
        return {"code": _ERROR, "message": span.error} if span.error else {"code": _ERROR}
    return {"code": _OK} if span.ok else {}


def _attributes(values: dict[str, Value]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(values[name])} for name in values]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


class Protobuf:
    """OTLP as protobuf, with the package opentelemetry-proto; raises InvalidState without it."""

    content_type = "application/x-protobuf"

    def __init__(self) -> None:
        if not is_installed():
            command = install_command(wanted=requirement("otlp", "opentelemetry-proto", _REQUIRED))
            raise InvalidState(
                "--format otlp needs the package opentelemetry-proto, which is not installed.",
                hint=f"Install it with: {command}. Or use --format json, which needs no package.",
            )

    def encode(self, spans: Sequence[Span]) -> bytes:
        """Return spans as one request."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        request = ExportTraceServiceRequest()
        of_resource = request.resource_spans.add()
        _fill(of_resource.resource.attributes.add, {"service.name": SERVICE})
        of_scope = of_resource.scope_spans.add()
        of_scope.scope.name, of_scope.scope.version = SCOPE, SCOPE_VERSION
        for span in spans:
            _fill_span(of_scope.spans.add(), span)
        body: bytes = request.SerializeToString(deterministic=True)
        return body

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """Return how many spans a collector rejected, and its words."""
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceResponse,
        )

        response = ExportTraceServiceResponse()
        try:
            response.ParseFromString(answer)
        except DecodeError:
            return 0, ""
        return response.partial_success.rejected_spans, response.partial_success.error_message


def is_installed() -> bool:
    """Return whether the package for protobuf is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.collector.trace.v1") is not None
    except ModuleNotFoundError:
        return False


def _fill_span(proto: "ProtoSpan", span: Span) -> None:
    proto.trace_id, proto.span_id = span.trace_id, span.span_id
    proto.parent_span_id = span.parent_id
    proto.name, proto.kind = span.name, proto.SPAN_KIND_INTERNAL
    proto.start_time_unix_nano, proto.end_time_unix_nano = span.start_ms * _NS, span.end_ms * _NS
    _fill(proto.attributes.add, span.attributes)
    for event in span.events:
        proto_event = proto.events.add()
        proto_event.time_unix_nano, proto_event.name = event.at_ms * _NS, event.name
        _fill(proto_event.attributes.add, event.attributes)
    proto.dropped_events_count = span.dropped_events
    if span.error is not None:
        proto.status.code = proto.status.STATUS_CODE_ERROR
        proto.status.message = span.error
    elif span.ok:
        proto.status.code = proto.status.STATUS_CODE_OK


def _fill(add: "Callable[[], KeyValue]", values: dict[str, Value]) -> None:
    for name, value in values.items():
        attribute = add()
        attribute.key = name
        if isinstance(value, bool):
            attribute.value.bool_value = value
        elif isinstance(value, int):
            attribute.value.int_value = value
        else:
            attribute.value.string_value = value


def batches(spans: Iterable[Span], most: int, most_bytes: int) -> Iterator[list[Span]]:
    """Yield spans in batches of at most ``most`` spans and about ``most_bytes`` bytes."""
    batch: list[Span] = []
    size = 0
    for span in spans:
        if batch and (len(batch) == most or size + span.size > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(span)
        size += span.size
    if batch:
        yield batch
