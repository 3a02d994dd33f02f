"""What a process has in its environment, and what a recipe cannot put there."""

from __future__ import annotations

from typing import Any

import pytest

from recipes import errors, pd, processes, recipe
from shipped import from_text
from srtgen.environment import CLEARED


def env(step: str = "agg_0", cluster: str | None = None, **keys: Any) -> dict[str, str]:
    return processes(from_text(recipe(**keys), cluster))[step]["env"]


def test_the_union_of_top_level_and_role() -> None:
    roles = pd({"env": {"A": "role", "C": "3"}}, {"env": {"A": "other"}})
    keys: dict[str, Any] = {"roles": roles, "environment": {"B": "top", "C": 3}}
    assert {k: v for k, v in env("prefill_0", **keys).items() if len(k) == 1} == {"B": "top", "C": "3", "A": "role"}
    assert {k: v for k, v in env("decode_0", **keys).items() if len(k) == 1} == {"B": "top", "C": "3", "A": "other"}
    assert {k: v for k, v in env("atomesh_0", **keys).items() if len(k) == 1} == {"B": "top", "C": "3"}


def test_two_values_for_one_name_are_an_error_that_names_both_lines() -> None:
    text = recipe(roles={"agg": {"nodes": 1, "workers": 1, "env": {"A": "1"}}}, environment={"A": "2"})
    (message,) = errors(text)
    lines = text.splitlines()
    assert message.startswith("roles.agg.env.A: ") and f"(line {lines.index(chr(32) * 2 + 'A: ' + repr('2')) + 1})" in message


@pytest.mark.parametrize(("value", "arrives"), [("x", "x"), ("", ""), (5, "5"), ("0.90", "0.90"), ("on", "on"), ("a,b\nc", "a,b\nc")])
def test_texts_and_whole_numbers_arrive(value: Any, arrives: str) -> None:
    assert env(environment={"X": value})["X"] == arrives


@pytest.mark.parametrize("text", ["on", "off", "yes", "no", "y", "0x10", "017", "1_000", "12:00:00", "2026-09-01"])
def test_case_007_words_arrive_as_they_are_written(text: str) -> None:
    source = recipe().rstrip() + f"\nenvironment: {{X: {text}}}\n"
    assert processes(from_text(source))["agg_0"]["env"]["X"] == text


@pytest.mark.parametrize("value", [True, False, 1.5, None, [], {}, ["a"], {"a": "b"}])
def test_case_007_other_values_are_refused(value: Any) -> None:
    assert errors(recipe(environment={"X": value}))


@pytest.mark.parametrize("name", [*CLEARED, "NODE_0_ADDR", "SRTGEN_X", "SRT_ENDPOINT", "SLURM_NODEID", "BENCH_ISL", "PLAN_ID", "BASH_ENV",
                                  "IFS", "UID", "PWD", "RANDOM", "here", "work", "argv", "index", "host_ip", "gpus", "ATOM_HOST_IP", "ATOM_DP_RANK"])
def test_names_that_are_taken(name: str) -> None:
    assert any("is set by srtgen" in message for message in errors(recipe(environment={name: "x"})))


@pytest.mark.parametrize("name", ["1A", "A-B", "A B", "", "Ä", "A=B", "A\n"])
def test_names_that_are_none(name: str) -> None:
    assert errors(recipe(environment={name: "x"}))


SECRETS = {
    "A": "hf_" + "a" * 30, "B": "sk-" + "b" * 20, "C": "AKIA" + "C" * 16, "D": "-----BEGIN PRIVATE KEY-----\nx", "E": "x hf_" + "a" * 34 + " y",
    "MY_TOKEN": "x", "MY_PASSWORD": "x", "MY_SECRET": "x", "MY_SECRET_KEY": "x", "MY_API_KEY": "x", "AWS_SECRET_ACCESS_KEY": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_in_plain_text(name: str) -> None:
    assert any("secret in plain text" in message for message in errors(recipe(environment={name: SECRETS[name]})))


@pytest.mark.parametrize(("name", "value"), [("MY_API_KEY", "EMPTY"), ("HF_TOKEN_PATH", "/x"), ("TOKENIZERS_PARALLELISM", "true"),
                                             ("CACHE", "/mnt/fast-disk-hf-hub-cache-of-everyone"), ("A", "hf_short")])
def test_harmless_values(name: str, value: str) -> None:
    assert env(environment={name: value})[name] == value


@pytest.mark.parametrize("place", ["args", "client_args", "argv", "command"])
def test_secrets_outside_of_the_environment(place: str) -> None:
    token = "hf_" + "a" * 34
    keys: dict[str, Any] = {
        "args": {"roles": {"agg": {"nodes": 1, "workers": 1, "args": {"x": token}}}},
        "client_args": {"benchmark": {"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1], "client_args": {"x": token}}},
        "argv": {"benchmark": {"type": "custom", "argv": ["curl", f"https://user:{token}@x"]}},
        "command": {"benchmark": {"type": "custom", "command": f"curl {token}"}},
    }[place]
    assert any("secret in plain text" in message for message in errors(recipe(**keys)))


@pytest.mark.parametrize("value", ["$HOME/x", "${HOME}", "{job_id}", "a{log_dir}b", "$A"])
@pytest.mark.parametrize("place", ["environment", "role", "frontend", "bench"])
def test_placeholders_are_errors_everywhere(place: str, value: str) -> None:
    given = {"X": value}
    keys: dict[str, Any] = {
        "environment": {"environment": given},
        "role": {"roles": {"agg": {"nodes": 1, "workers": 1, "env": given}}},
        "frontend": {"frontend": {"env": given}},
        "bench": {"benchmark": {"type": "custom", "argv": ["x"], "env": given}},
    }[place]
    assert any("is not expanded" in message for message in errors(recipe(**keys)))


@pytest.mark.parametrize("value", ["$", "$(x)", "{}", "{A}", "{a b}", "50$", "$1", '{"a": 1}'])
def test_what_looks_like_a_placeholder_and_is_none(value: str) -> None:
    assert env(environment={"X": value})["X"] == value


def test_secrets_of_the_submitting_shell_are_required_and_passed() -> None:
    bundle = from_text(recipe(environment={"HF_TOKEN": {"from_submit": "MY_HF"}}))
    script = bundle.files["run.sbatch"].content.decode()
    assert "readonly PLAN_PASS_ENV=(\n  MY_HF\n)" in script
    assert "readonly PLAN_REQUIRE_ENV=(\n  MY_HF\n)" in script
    assert 'export HF_TOKEN="${MY_HF:?}"' in bundle.files["roles/agg.sh"].content.decode()


@pytest.mark.parametrize(("protocol", "gid", "wanted"), [
    ("tcp", False, {"MC_FORCE_TCP": "true"}), ("tcp", True, {"MC_FORCE_TCP": "true"}), ("rdma", False, {}), ("rdma", True, {"MC_IB_GID_INDEX": "3"}),
])  # fmt: skip
def test_transport_variables(protocol: str, gid: bool, wanted: dict[str, str]) -> None:
    keys: dict[str, Any] = {"roles": pd(), "engine": {"type": "atom", "mooncake_protocol": protocol}}
    for step in ("prefill_0", "decode_0"):
        found = env(step, "rdma: {gid_index: 3}" if gid else None, **keys)
        assert {k: v for k, v in found.items() if k.startswith("MC_")} == wanted
    assert not any(k.startswith("MC_") for k in env("atomesh_0", "rdma: {gid_index: 3}" if gid else None, **keys))


def test_a_variable_that_repeats_what_srtgen_sets_is_no_contradiction() -> None:
    keys: dict[str, Any] = {"roles": pd(), "engine": {"type": "atom", "mooncake_protocol": "tcp"}}
    assert env("prefill_0", environment={"MC_FORCE_TCP": "true"}, **keys)["MC_FORCE_TCP"] == "true"
    assert any("contradicts" in m for m in errors(recipe(environment={"MC_FORCE_TCP": "1"}, **keys)))


def test_each_process_has_folders_of_its_own_unless_the_recipe_says() -> None:
    found = processes(from_text(recipe(roles={"agg": {"nodes": 1, "workers": 2}})))
    homes = [found[step]["env"]["HOME"] for step in ("agg_0", "agg_1", "atomesh_0")]
    assert homes == [f"/tmp/srtgen-${{SLURM_JOB_ID}}/{step}/home" for step in ("agg_0", "agg_1", "atomesh_0")]
    assert env(environment={"TRITON_CACHE_DIR": "/x"})["TRITON_CACHE_DIR"] == "/x"
