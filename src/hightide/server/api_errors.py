"""Errors as clients of OpenAI's API expect them: a status, and a body with a message, a type and more."""

from __future__ import annotations

from typing import Any

from hightide.errors import HightideError


class ApiError(HightideError):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        parameter: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.parameter, self.code = status, message, parameter, code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.parameter, "code": self.code}}


_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def bad_request(message: str, parameter: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, parameter=parameter, code=code)
