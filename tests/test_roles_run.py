"""What runs is what the manifest says, byte for byte: the generated scripts in real bash, with recording programs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from recipes import manifest, recipe
from role_rig import PLAIN_CLIENT, Rig
from shipped import BUNDLES, SMOKE, from_text, made, put, source
from srtgen import environment
from srtgen.errors import RecipeError
from srtgen.generate import Bundle
from srtgen.generate import bundle as generate

RUN_TIME_WORD = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
# Run-time words of a manifest: addresses, the job, where results and bundle are seen from the process.
KNOWN_WORD = re.compile(r"\$\{(NODE_[0-9]+_ADDR|SLURM_JOB_ID|SRTGEN_RESULTS|SRTGEN_BUNDLE)\}")

WITH_REAL_CLIENT_LIBRARY = {SMOKE, "dsv4-pro-fp4-mi355x-1p1d-tp8-8k1k"}


def bundle_with_client(name: str, folder: Path) -> Bundle:
    """The bundle, with the client's file in a place that this machine has."""
    if made(name).plan.recipe.benchmark.client != "inferencex":
        return made(name)
    client = folder / "benchmark_serving.py"
    client.touch()
    recipe, cluster = BUNDLES[name]
    changes = [("set", f"benchmark.client_path={client}")]
    return generate(source(recipe), source(cluster) if cluster else None, changes)


@pytest.mark.parametrize("name", BUNDLES)
def test_what_runs_is_what_the_manifest_says(name: str, tmp_path: Path) -> None:
    bundle = bundle_with_client(name, tmp_path)
    rig = Rig(tmp_path, put(bundle, tmp_path / "the bundle"))
    if name not in WITH_REAL_CLIENT_LIBRARY:
        (rig.bundle / "lib/bench.sh").write_text(PLAIN_CLIENT)
    processes = manifest(bundle)["processes"]
    for process in (p for p in processes if p["role"] != "bench"):
        (record,) = rig.run(process["step"], f"roles/{process['role']}.sh", str(process["index"]))
        rig.check(process, record)
    points = [p for p in processes if p["role"] == "bench"]
    records = rig.run("bench", "bench.sh")
    assert len(records) == len(points)
    for process, record in zip(points, records):
        rig.check(process, record)


@pytest.mark.parametrize("name", BUNDLES)
def test_run_time_words_of_the_manifest_are_few(name: str) -> None:
    for process in manifest(made(name))["processes"]:
        for text in (*process["argv"], *process["env"].values()):
            assert all(KNOWN_WORD.fullmatch(found) for found in RUN_TIME_WORD.findall(text)), text


@pytest.mark.parametrize("name", BUNDLES)
def test_manifest_lists_every_file_and_has_an_id(name: str) -> None:
    files = made(name).files
    said = manifest(made(name))
    assert set(said["files"]) == set(files) - {"manifest.json"}
    for path, entry in said["files"].items():
        assert entry == {"sha256": hashlib.sha256(files[path].content).hexdigest(), "executable": files[path].executable}
    of_id = {k: v for k, v in said.items() if k != "id"}
    of_id["files"] = {k: v for k, v in said["files"].items() if k != "run.sbatch"}
    compact = json.dumps(of_id, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert said["id"] == hashlib.sha256(compact.encode()).hexdigest()
    assert f"readonly PLAN_ID={said['id']}\n" in files["run.sbatch"].content.decode()


@pytest.mark.parametrize("name", BUNDLES)
def test_a_role_script_refuses_an_index_that_it_has_not(name: str, tmp_path: Path) -> None:
    rig = Rig(tmp_path, put(made(name), tmp_path / "bundle"))
    for path in (p for p in made(name).files if p.startswith("roles/")):
        with pytest.raises(AssertionError, match="there is no number 99"):
            rig.run("x", path, "99")


def test_secrets_come_from_the_submitting_shell_and_must_be_there(tmp_path: Path) -> None:
    bundle = from_text(agg(env={"HF_TOKEN": {"from_submit": "MY_TOKEN"}}))
    folder = put(bundle, tmp_path / "bundle")
    process = manifest(bundle)["processes"][0]
    assert process["env"]["HF_TOKEN"] == "${MY_TOKEN}"
    secret = "hf_$(id) 'x' \n\"y\""
    (record,) = (rig := Rig(tmp_path, folder, extra={"MY_TOKEN": secret})).run("agg_0", "roles/agg.sh", "0")
    assert record.env["HF_TOKEN"] == secret
    rig.check(process, record)
    with pytest.raises(AssertionError, match="MY_TOKEN"):
        Rig(tmp_path, folder).run("agg_0", "roles/agg.sh", "0")
    assert secret.encode() not in b"".join(file.content for file in bundle.files.values())


def agg(**role: Any) -> str:
    """A recipe of one aggregate worker."""
    return recipe(roles={"agg": {"nodes": 1, "workers": 1, **role}})


NASTY = (
    "", " ", "a b", "  two  ", "'", '"', "''", "\\", "\\'", "$(touch /tmp/pwned)", "`id`", "a\nb\n", "\n", "\t", "*", "?",
    "[a-z]", "~", "~root", "!", "!!", "#", "# x", "&&", ";", "|", ">x", "<(id)", "{1..9}", "{a,b}", "--", "-", "-1", "-1.5",
    "-x", "--tp=4", "a,b", "a=b", "=", "é", "日本", "🙂", "\u202e", "%s", "%n", "$", "$$", "$?", "$@", "${", "}", "EOF",
    "\\n", "\\0", "a\\\nb", '{"use_cache":true,"n":4}', "C:\\x\\", "$'\\x41'",
)  # fmt: skip
texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\x85\u2028\u2029", exclude_categories=("Cs", "Cn", "Co", "Cc")), max_size=12),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=4).map("".join),
).filter(lambda text: not environment.placeholder(text) and not environment.looks_secret(text))
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith(("LD_", "LC_")) and name not in ("PATH", "HOME", "LANG")
)
slow = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

few = settings(slow, max_examples=8)


def accepted(text: str) -> Bundle:
    """The bundle; a recipe that is refused with a reason is no case for these tests."""
    try:
        return from_text(text)
    except RecipeError as error:
        assume(not error)
        raise


def run_all(bundle: Bundle, folder: Path) -> None:
    """Every process of the bundle against its manifest."""
    rig = Rig(folder, put(bundle, folder / "bundle"), programs=("python3", "atomesh", "client"))
    (rig.bundle / "lib/bench.sh").write_text(PLAIN_CLIENT)
    records: dict[str, list[Any]] = {}
    for process in manifest(bundle)["processes"]:
        step, role = process["step"], process["role"]
        if step not in records:
            script = ("bench.sh",) if role == "bench" else (f"roles/{role}.sh", str(process["index"]))
            records[step] = rig.run(step, *script)
        rig.check(process, records[step].pop(0))
    assert not any(records.values())
    assert not Path("/tmp/pwned").exists()


@slow
@given(values=st.lists(texts, min_size=1, max_size=6), name=texts)
def test_any_text_in_args_arrives(values: list[str], name: str, tmp_path: Path) -> None:
    args = {f"x-{n}": value for n, value in enumerate(values)} | ({"served-model-name": name} if name else {})
    frontend = {"args": {f"y-{n}": value for n, value in enumerate(values)} | {"api-key": name}}
    run_all(accepted(recipe(roles={"agg": {"nodes": 1, "workers": 1, "args": args}}, frontend=frontend)), tmp_path)


@slow
@given(env=st.dictionaries(names, texts, min_size=1, max_size=6))
def test_any_text_in_environments_arrives(env: dict[str, str], tmp_path: Path) -> None:
    bundle = accepted(recipe(environment=env))
    assert env.items() <= manifest(bundle)["processes"][0]["env"].items()
    run_all(bundle, tmp_path)


@few
@given(env=st.dictionaries(names, texts, min_size=1, max_size=6))
def test_any_text_in_the_environment_of_the_client_arrives(env: dict[str, str], tmp_path: Path) -> None:
    run_all(accepted(recipe(benchmark={"type": "custom", "argv": ["client"], "env": env})), tmp_path)


@few
@given(words=st.lists(texts, max_size=6))
def test_any_text_in_a_custom_command_arrives(words: list[str], tmp_path: Path) -> None:
    run_all(accepted(recipe(benchmark={"type": "custom", "argv": ["client", *words]})), tmp_path)


@few
@given(values=st.lists(texts, min_size=1, max_size=4))
def test_any_text_in_client_args_arrives(values: list[str], tmp_path: Path) -> None:
    args = {f"z-{n}": value for n, value in enumerate(values)}
    bench = {"type": "sa-bench", "isl": 8, "osl": 8, "concurrencies": [1], "client_args": args, "tokenizer": "org/other"}
    run_all(accepted(recipe(benchmark=bench)), tmp_path)


@slow
@given(value=st.recursive(texts | st.integers() | st.booleans(), lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(texts, inner, min_size=1, max_size=3), max_leaves=6).filter(lambda v: isinstance(v, dict)))
def test_any_mapping_in_a_json_flag_arrives(value: dict[str, Any], tmp_path: Path) -> None:
    bundle = accepted(agg(args={"hf-overrides": value, "online_quant_config": value}))
    argv = manifest(bundle)["processes"][0]["argv"]
    assert json.loads(argv[-1]) == value
    run_all(bundle, tmp_path)


COMMANDS = {
    "plain": ("echo \"$SRT_ENDPOINT\"", []),
    "heredoc": ("cat <<'EOF'\nEOF x\n\\n `id` \\\nEOF\n\"$CLIENT\" \"a  b\" '$x'", [["client", "a  b", "$x"]]),
    "bare_star": ("cd /\n\"$CLIENT\" '*' `printf x`\\ny", [["client", "*", "xny"]]),
    "final_backslash": ("\"$CLIENT\" x \\", [["client", "x"]]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_run_as_it_is_written(name: str, tmp_path: Path) -> None:
    command, started = COMMANDS[name]
    bundle = from_text(recipe(benchmark={"type": "custom", "command": command}))
    assert bundle.files["bench_command.sh"].content.decode() == command + "\n"
    rig = Rig(tmp_path, put(bundle, tmp_path / "bundle"), programs=("python3", "client"))
    rig.extra = {"CLIENT": str(rig.bin / "client")}
    assert [r.argv for r in rig.run("bench", "bench.sh")] == started


def test_workers_of_one_role_that_share_a_node_and_one_that_does_not(tmp_path: Path) -> None:
    """Ports of ranks are set where a worker shares its node, and unset for the one that is alone on its own."""
    bundle = from_text(recipe(roles={"agg": {"nodes": 2, "workers": 3, "gpus": 2}}))
    envs = [p["env"] for p in manifest(bundle)["processes"][:3]]
    assert ["ATOM_DP_MASTER_PORT" in env for env in envs] == [True, True, False]
    run_all(bundle, tmp_path)


def test_several_workers_of_a_node_get_what_is_theirs(tmp_path: Path) -> None:
    roles = {"prefill": {"nodes": 2, "workers": 4, "gpus": 2}, "decode": {"nodes": "colocate", "workers": 2, "gpus": 4}}
    bundle = from_text(recipe(roles=roles))
    run_all(bundle, tmp_path)
    masks = [p["env"]["HIP_VISIBLE_DEVICES"] for p in manifest(bundle)["processes"][:6]]
    assert masks == ["0,1", "2,3", "0,1", "2,3", "4,5,6,7", "4,5,6,7"]
