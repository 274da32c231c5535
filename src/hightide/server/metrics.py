"""Metrics for Prometheus, named as vLLM names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hightide.server.models import ServedModel
from hightide.server.records import Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_LABELS = ["model_name"]


class Metrics:
    """Counts requests as they end and tokens as they are made, and asks the models how they are when it is read."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = CollectorRegistry()
        registry.register(_EngineMetrics(models))
        self._open: dict[Record, int] = {}  # the requests under way, and how many of their tokens were counted

        def counter(name: str, text: str, labels: list[str] = _LABELS) -> Counter:
            return Counter(f"hightide:{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"hightide:{name}", text, _LABELS, registry=registry, buckets=_SECONDS)

        self._prompt_tokens = counter("prompt_tokens", "Tokens of prompts.")
        self._new_tokens = counter("generation_tokens", "Tokens that were made.")
        self._queries = counter("prefix_cache_queries", "Tokens of prompts that were looked for in the KV cache.")
        self._hits = counter("prefix_cache_hits", "Tokens of prompts that were found in the KV cache.")
        self._success = counter(
            "request_success", "Requests that were answered, by why the answer ended.", [*_LABELS, "finished_reason"]
        )
        self._replies = counter("http_requests", "Requests by path and status.", ["path", "status"])
        self._first = histogram("time_to_first_token_seconds", "From the request to the first token.")
        self._each = histogram("time_per_output_token_seconds", "From one token of a request to the next, on average.")
        self._whole = histogram("e2e_request_latency_seconds", "From the request to the end of the answer.")

    def begin(self, record: Record) -> None:
        """A request has come."""
        self._open[record] = 0

    def finish(self, record: Record) -> None:
        """A request is over."""
        self._count_new_tokens(record)
        del self._open[record]
        self._replies.labels(record.path, str(record.status)).inc()
        if not record.model or not record.prompt_tokens:
            return
        name = record.model
        self._prompt_tokens.labels(name).inc(record.prompt_tokens)
        self._queries.labels(name).inc(record.prompt_tokens)
        self._hits.labels(name).inc(record.cached_tokens)
        self._whole.labels(name).observe(record.seconds)
        if record.outcome in ("stop", "length", "tool_calls"):
            self._success.labels(name, record.outcome).inc()
        if record.first_token is not None and record.last_token is not None:
            self._first.labels(name).observe(record.first_token - record.began)
            if record.new_tokens > 1:
                self._each.labels(name).observe((record.last_token - record.first_token) / (record.new_tokens - 1))

    def _count_new_tokens(self, record: Record) -> None:
        if record.new_tokens > self._open[record]:
            self._new_tokens.labels(record.model).inc(record.new_tokens - self._open[record])
            self._open[record] = record.new_tokens

    def text(self) -> bytes:
        for record in self._open:
            self._count_new_tokens(record)
        return generate_latest(self._registry)


class _EngineMetrics(Collector):
    """What the engines said of themselves last."""

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self._models = models

    def collect(self) -> Iterable[Metric]:
        running = GaugeMetricFamily("hightide:num_requests_running", "Answers that are being made.", labels=_LABELS)
        waiting = GaugeMetricFamily("hightide:num_requests_waiting", "Answers that wait.", labels=_LABELS)
        used = GaugeMetricFamily(
            "hightide:kv_cache_usage_perc", "Part of the KV cache in use; 1 is all.", labels=_LABELS
        )
        loaded = GaugeMetricFamily("hightide:model_loaded", "1 if the model is loaded.", labels=_LABELS)
        restarts = CounterMetricFamily("hightide:worker_restarts", "Workers that ended unasked.", labels=_LABELS)
        given = CounterMetricFamily(
            "hightide:replica_requests", "Prompts that a replica of a cluster was given.", labels=[*_LABELS, "replica"]
        )
        for name, model in self._models.items():
            runner, stats = model.runner, model.runner.stats
            running.add_metric([name], stats.get("running", 0))
            waiting.add_metric([name], stats.get("waiting", 0) + runner.held)
            used.add_metric([name], stats.get("pages_used", 0) / max(1, stats.get("pages", 1)))
            loaded.add_metric([name], runner.loaded)
            restarts.add_metric([name], runner.restarts)
            for replica, count in runner.given.items():
                given.add_metric([name, replica], count)
        return [running, waiting, used, loaded, restarts, given]
