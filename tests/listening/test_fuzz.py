"""Whatever is sent, the server answers as its OpenAPI document says, and goes on."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

from sottovoce.listening.server.limits import Limits

OPERATIONS = (
    ("POST", "/api/sessions"),
    ("GET", "/api/sessions/{token}/screen"),
    ("POST", "/api/sessions/{token}/answers"),
    ("GET", "/api/audio/{name}"),
    ("GET", "/healthz"),
    ("GET", "/api/admin/progress"),
    ("GET", "/api/admin/answers.csv"),
    ("GET", "/api/admin/sessions.csv"),
    ("GET", "/results"),
    ("GET", "/results/report"),
)


@pytest.fixture
def fuzzed(make_site: Any, tmp_path: Any) -> tuple[Any, Any]:
    limits = Limits(session_burst=1e9, address_burst=1e9, joins_an_hour=1e9, wrong_tokens=10**9)
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings={"limits": limits})
    return site, schemathesis.openapi.from_asgi("/api/openapi.json", site.app)


def test_every_operation_is_fuzzed(fuzzed):
    _, document = fuzzed
    found = {(one.ok().method.upper(), one.ok().path) for one in document.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize("examples", [8, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_replies_are_as_documented(fuzzed, slots, method, path, mode, examples):
    site, document = fuzzed
    operation = document[path][method]
    if mode == GenerationMode.NEGATIVE and path in ("/healthz", "/api/admin/progress"):
        pytest.skip("takes nothing that could be wrong")

    @settings(max_examples=examples, deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def check(case: Any, known: bool) -> None:
        # A schema cannot say which answers a screen can have, nor that 16.0 is no integer here.
        excluded = [checks.positive_data_acceptance] if method == "POST" else []
        if known:
            # As a listener who is there, at the screen that is there: behind the first door.
            _let_in(site, slots, case)
            excluded = [checks.positive_data_acceptance, checks.negative_data_rejection, checks.ignored_auth]
        case.call_and_validate(excluded_checks=excluded)

    check()
    listener = site.listener()
    listener.finish()


def _let_in(site: Any, slots: Any, case: Any) -> None:
    listener = site.listener()
    shown = listener.until("abx")
    if "token" in (case.path_parameters or {}):
        case.path_parameters["token"] = listener.token
    if "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = slots(shown)[0]["audio"]
        case.query = {**(case.query or {}), "token": listener.token}
    if isinstance(case.body, dict) and "screen" in case.body:
        case.body["screen"] = shown["id"]
    if case.path.startswith(("/api/admin", "/results")):
        case.headers = {**(case.headers or {}), **site.admin}
