"""What every endpoint is given: the models of the server, and its limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hightide.errors import HightideError
from hightide.server.answers import Answers, as_api_error
from hightide.server.api_errors import ApiError, bad_request
from hightide.server.messages import Ready
from hightide.server.models import ServedModel, choose_model
from hightide.server.parameters import Parameters
from hightide.server.records import Record
from hightide.server.replies import ServerEvent


@dataclass
class Service:
    models: dict[str, ServedModel]
    request_seconds: float  # that an answer may take
    draining: bool = False  # the server is about to end: no new requests

    @cached_property
    def named(self) -> dict[str, ServedModel]:
        """All that requests may name: the models, and each with one of its adapters."""
        return {name: one for model in self.models.values() for name, one in model.with_adapters().items()}

    async def model(
        self, parameters: Parameters, record: Record, embeds: bool | None = False
    ) -> tuple[ServedModel, Ready]:
        """The model that a request names, loaded if it is not; and its facts.

        `embeds`: whether it is to give vectors or answers; None if that does not matter.
        """
        model = choose_model(self.named, parameters.text("model"))
        record.model = model.name
        try:
            facts = await model.runner.ready()
        except ApiError:
            raise
        except HightideError as error:
            raise ApiError(503, f"the model cannot be opened: {as_api_error(error).message}") from None
        if embeds is not None and embeds != facts.embeds:
            gives = "embeddings, not answers" if facts.embeds else "answers, not embeddings (see --pooling)"
            raise bad_request(f"the model {model.name} gives {gives}", "model", "model_not_suited")
        return model, facts


@dataclass(frozen=True)
class StreamedReply:
    """A reply that is sent as it is made."""

    events: AsyncIterator[ServerEvent]
    answers: Answers


Reply = dict[str, Any] | StreamedReply
