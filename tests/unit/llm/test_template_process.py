"""The process that renders chat templates: its bounds, and what happens when it or its user ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hostile_templates import QUICK, SLOW

from hightide.errors import HightideError, InputError
from hightide.llm.chat_template import prepare, render
from hightide.llm.template_pipe import MAX_SECONDS
from hightide.llm.template_process import TemplateProcess, shared_process

HI = [{"role": "user", "content": "Hi"}]
ENDLESS = SLOW["loops over lists"]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")
# Renders hostile templates; prints the peak memory of the renderer and of itself, in MB.
PEAKS = r"""
import pathlib, re, resource, sys
sys.path.insert(0, sys.argv[1])
from hostile_templates import QUICK, SLOW
from hightide.errors import HightideError, InputError
from hightide.llm.chat_template import render
from hightide.llm.template_process import shared_process
for name, template in {"quick": QUICK, "slow": SLOW}[sys.argv[2]].items():
    try:
        print(name, len(render(template, [{"role": "user", "content": "Hi"}])), file=sys.stderr)
    except InputError:
        pass
shared_process().close()
status = pathlib.Path("/proc/self/status")
if status.exists():  # getrusage begins with what the parent had when it forked
    own = int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) >> 10
else:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, own)
"""


def script(text: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", text, *arguments], stdout=pipe, stderr=pipe, text=True, **options)


def refused(template: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError, match="the chat template") as raised:
        render(template, HI)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400
    assert time.perf_counter() - start < 60  # a hang: it takes 2 s, and as long as the machine is busy


@pytest.mark.parametrize("name", ["power", "center", "percent width", "doubling", "recursive macro", "deep list"])
def test_a_hostile_template_is_refused(name: str) -> None:
    refused(QUICK[name])


def test_a_template_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hightide.llm.template_process.MAX_SECONDS", 0.3)
    with pytest.raises(InputError, match=r"stopped: it took longer than 0\.3 s"):
        render(ENDLESS, HI)
    monkeypatch.setattr("hightide.llm.template_process.MAX_SECONDS", MAX_SECONDS)
    assert render("{{ messages[0].content }}", HI) == "Hi"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_every_hostile_template_is_refused(name: str) -> None:
    refused((QUICK | SLOW)[name])


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("which", ["quick", "slow"])
def test_hostile_templates_take_little_memory(which: str) -> None:
    out, errors = script(PEAKS, str(Path(__file__).parent), which).communicate(timeout=600)
    assert errors == ""
    renderer, user = map(int, out.split())
    assert renderer < 200 and user < 200


@POSIX
def test_ctrl_c_stops_a_rendering_at_once() -> None:
    text = f"""
import os, signal, threading
from hightide.llm.chat_template import render
hi = {HI!r}
render("a", hi)
try:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    render({ENDLESS!r}, hi)  # an InputError, if it is not interrupted
except KeyboardInterrupt:
    print(render("again", hi))
"""
    out, errors = script(text).communicate(timeout=60)
    assert (out, errors) == ("again\n", "")


@POSIX
def test_it_does_not_outlive_its_user() -> None:
    text = f"""
import sys
from hightide.llm.chat_template import render
from hightide.llm import template_process as p
render("a", {HI!r})
print(p._shared._process.pid, flush=True)
sys.stdin.read() if sys.argv[1] == "killed" else None
"""
    for how in ("killed", "ended"):
        user = script(text, how, stdin=subprocess.PIPE)
        assert user.stdout is not None
        renderer = int(user.stdout.readline())
        user.kill() if how == "killed" else None
        user.communicate(timeout=60)
        assert gone(renderer)


def gone(process: int) -> bool:
    """Within a while."""
    for _ in range(300):
        try:
            os.kill(process, 0)
            state = Path(f"/proc/{process}/stat")
            if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # whoever adopts orphans does not look after them here
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@POSIX
def test_one_that_was_killed_is_started_again() -> None:
    process = TemplateProcess()
    process.start()
    inner = process._process
    assert inner is not None
    os.kill(inner.pid, signal.SIGKILL)
    inner.wait()
    request = b'{"template": "a", "values": {}}'
    assert process.ask(request) == {"text": "a"}
    process.close()
    assert process.ask(request) == {"text": "a"}
    process.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_its_own() -> None:
    text = f"""
import os, sys
from hightide.llm.chat_template import render
hi = {HI!r}
render("a", hi)
child = os.fork()
texts = [render(str(i) + " {{{{ " + str(bool(child)) + " }}}}", hi) for i in range(20)]
assert texts == [f"{{i}} {{bool(child)}}" for i in range(20)], texts
os.waitpid(child, 0) if child else os._exit(0)
"""
    out, errors = script(text).communicate(timeout=60)
    assert errors == "" and out == ""


def test_threads_share_it() -> None:
    prepare()
    texts: dict[int, list[str]] = {}

    def work(n: int) -> None:
        texts[n] = [render(f"{n}-{i} {{{{ messages[0].content }}}}", HI) for i in range(10)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {n: [f"{n}-{i} Hi" for i in range(10)] for n in range(4)}


def test_it_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_process().close()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(HightideError, match="could not be started"):
        render("a", HI)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(HightideError, match="could not be started"):
        render("a", HI)


def test_it_imports_little_and_its_user_no_jinja2() -> None:
    look = "; import sys; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    for module, without in (("template_sandbox", {"numpy", "wgpu", "tokenizers"}), ("chat_template", {"jinja2"})):
        out, errors = script(f"import hightide.llm.{module}{look}").communicate(timeout=60)
        assert errors == "" and not without & set(eval(out))


@pytest.mark.parametrize(
    "value", ["é\ud800<&>\x00\n", [1, 2.5, None, True, -(2**70)], {"a": {"b": [{}]}}, (1, 2), float("inf")]
)
def test_values_arrive_as_they_are(value: Any) -> None:
    plain = list(value) if isinstance(value, tuple) else value
    assert render("{{ value }}", HI, value=value) == str(plain)


def test_values_that_are_not_data_are_refused() -> None:
    nested: list[Any] = []
    nested.append(nested)
    for value in (object(), nested, b"abc", len):
        with pytest.raises(InputError, match="plain data"):
            render("{{ value }}", HI, value=value)
