"""The HTTP side: which path is what, and how a request becomes a reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hightide.errors import HightideError
from hightide.server.answers import as_api_error
from hightide.server.api_errors import ApiError, bad_request
from hightide.server.chat import chat_completions
from hightide.server.completions import completions
from hightide.server.embeddings import embeddings
from hightide.server.logs import Log
from hightide.server.metrics import CONTENT_TYPE, Metrics
from hightide.server.page_files import page_file
from hightide.server.records import Record
from hightide.server.replies import DONE, Disconnected, EventStream, JsonReply, ServerEvent, unless_disconnected
from hightide.server.reply_parts import new_id
from hightide.server.rerank import rerank
from hightide.server.responses import responses
from hightide.server.security import Security
from hightide.server.service import Reply, Service, StreamedReply
from hightide.server.tokens import detokenize, tokenize

BODY_SECONDS = 60.0  # that a client may take to send its request
CLIENT_GONE = 499  # for the log

Handler = Callable[[Service, dict[str, Any], Record], Awaitable[Reply]]

ENDPOINTS: Mapping[str, Handler] = {
    "/v1/chat/completions": chat_completions,
    "/v1/completions": completions,
    "/v1/responses": responses,
    "/v1/embeddings": embeddings,
    "/v1/rerank": rerank,
    "/tokenize": tokenize,
    "/detokenize": detokenize,
}


def make_app(service: Service, security: Security, log: Log, max_body: int) -> ASGIApp:
    """The application; requests may have bodies of `max_body` bytes."""
    metrics = Metrics(service.models)

    def finish(record: Record) -> None:
        metrics.finish(record)
        log.request(record)

    def endpoint(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            record = Record(request.scope["path"], new_id("req_"))
            metrics.begin(record)
            try:
                if service.draining:
                    raise ApiError(503, "the server is about to end", code="shutting_down")
                body = await _read_body(request, max_body)
                reply = await unless_disconnected(request.receive, handler(service, body, record))
            except (Disconnected, ClientDisconnect, asyncio.CancelledError) as gone:
                record.status, record.outcome = CLIENT_GONE, "disconnected"
                finish(record)
                if isinstance(gone, asyncio.CancelledError):
                    raise
                return Response(status_code=CLIENT_GONE)
            except Exception as error:
                failure = _failure(error, log)
                record.status, record.error = failure.status, failure.message
                finish(record)
                return _error_reply(failure, {"X-Request-Id": record.id})
            record.status = 200
            if not isinstance(reply, StreamedReply):
                finish(record)
                return JsonReply(reply, headers={"X-Request-Id": record.id})

            def over(complete: bool) -> None:
                reply.answers.cancel()
                if not complete:
                    record.status, record.outcome = CLIENT_GONE, "disconnected"
                finish(record)

            return EventStream(_to_the_end(reply.events, record, log), over, {"X-Request-Id": record.id})

        return answer

    async def health(_: Request) -> Response:
        return JsonReply({"status": "ok"})

    async def ready(_: Request) -> Response:
        runners = [model.runner for model in service.models.values()]
        waiting = any(one.starting for one in runners) and not any(one.loaded for one in runners)
        fine = not waiting and not service.draining
        return JsonReply({"status": "ready" if fine else "not ready"}, 200 if fine else 503)

    async def list_models(_: Request) -> Response:
        return JsonReply({"object": "list", "data": [model.listing() for model in service.named.values()]})

    async def show_model(request: Request) -> Response:
        model = service.named.get(request.path_params["name"])
        if model is None:
            return _error_reply(ApiError(404, "there is no such model", parameter="model", code="model_not_found"))
        return JsonReply(model.listing())

    async def show_metrics(_: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    routes = [
        Route("/", page_file),
        Route("/page/{name:path}", page_file),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", show_metrics),
        Route("/v1/models", list_models),
        Route("/v1/models/{name:path}", show_model),
        *(Route(path, endpoint(handler), methods=["POST"]) for path, handler in ENDPOINTS.items()),
    ]
    return _Guard(Starlette(routes=routes, exception_handlers={HTTPException: _http_error}), security)


class _Guard:
    """Refuses what may not ask, before anything else is done."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app, self._security = app, security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no lifespan, no WebSocket
            return
        request = Request(scope)
        cors = self._security.cors_headers(request.headers)

        async def send_with_cors(message: Any) -> None:
            if message["type"] == "http.response.start" and cors:
                extra = [(name.lower().encode(), value.encode("latin-1")) for name, value in cors.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        reply: ASGIApp = self._app
        if cors and request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            reply = Response(status_code=204)
        else:
            try:
                # Not request.url, which a Host header can change.
                self._security.check(scope["path"], request.headers)
            except ApiError as error:
                reply = _error_reply(error)
        await reply(scope, receive, send_with_cors)


async def _read_body(request: Request, most: int) -> dict[str, Any]:
    """The JSON object that a request is."""
    too_large = ApiError(413, f"the request has more than {most} bytes", code="request_too_large")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise too_large
    data = bytearray()

    async def read() -> None:
        async for piece in request.stream():
            data.extend(piece)
            if len(data) > most:
                raise too_large

    try:
        await asyncio.wait_for(read(), BODY_SECONDS)
    except asyncio.TimeoutError:
        raise ApiError(408, f"the request did not arrive within {BODY_SECONDS:g} s") from None
    try:
        body = json.loads(bytes(data), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the request is not JSON: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(body, dict):
        raise bad_request("the request must be a JSON object")
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


async def _to_the_end(events: AsyncIterator[ServerEvent], record: Record, log: Log) -> AsyncIterator[ServerEvent]:
    """A stream that has begun can only tell of an error in an event."""
    try:
        async for event in events:
            yield event
    except Exception as error:
        failure = _failure(error, log)
        record.outcome, record.error = "error", failure.message
        yield ServerEvent(failure.body())
        yield DONE


def _failure(error: Exception, log: Log) -> ApiError:
    """What the client is told. What nobody has foreseen is for the log alone."""
    if isinstance(error, HightideError):
        return as_api_error(error)
    log.mistake(error)
    return ApiError(500, "the server made a mistake; its log says more")


def _error_reply(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JsonReply(error.body(), error.status, headers={**error.headers, **(headers or {})})


async def _http_error(request: Request, error: Exception) -> Response:
    """No such path, or another method."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    message = {404: f"there is nothing at {path}", 405: f"{path} does not take this method"}
    return _error_reply(ApiError(error.status_code, message.get(error.status_code, error.detail)))
