"""Parts A and B of the collected cases, each by its number: what went wrong for people, and that it cannot here.

Where a case is about a running job, its generated half is tested here.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from recipes import errors, manifest, pd, processes, recipe
from role_rig import Rig
from shipped import BUNDLES, from_text, made, put
from srtgen.errors import RecipeError
from srtgen.generate import Bundle

SWEEP = {"type": "sa-bench", "isl": 1024, "osl": 1024, "concurrencies": [4]}


def raw(text: str) -> str:
    """The small recipe with a line of YAML behind it, exactly as written."""
    key = text.partition(":")[0]
    return recipe(**{key: None}).rstrip() + f"\n{text}\n"


def script(bundle: Bundle, path: str = "run.sbatch") -> str:
    return bundle.files[path].content.decode()


@pytest.mark.parametrize("limit", ["8:00:00", "12:00:00", "24:00:00", "4:00", "08:00:00", "00:30:00", "1-12:00:00", "2-12", "'90'"])
def test_case_001_a_time_limit_arrives_as_it_is_written(limit: str) -> None:
    bundle = from_text(raw(f"slurm: {{time_limit: {limit}}}"))
    wanted = limit.strip("'")
    assert f"#SBATCH --time={wanted}\n" in script(bundle)


@pytest.mark.parametrize("limit", ["28800", "90", "90.0", "1e3", "true", "8h", "'8 hours'", "'00:00:00'", '"08:00:00\\n"'])
def test_case_001_a_number_is_no_time_limit(limit: str) -> None:
    (message,) = errors(raw(f"slurm: {{time_limit: {limit}}}"))
    assert message.startswith("slurm.time_limit: ")


def test_case_001_the_same_in_a_profile() -> None:
    assert "#SBATCH --time=12:00:00\n" in script(from_text(recipe(), "default_time_limit: 12:00:00"))
    assert errors(recipe(), "default_time_limit: 43200")


CASE_003 = {
    "nodes": "roles: {agg: {nodes: 2.0, workers: 2}}",
    "port": "ports: {router: 8000.0}",
    "concurrency": "benchmark: {type: sa-bench, isl: 8, osl: 8, concurrencies: [16.0]}",
    "time_limit": "slurm: {time_limit: 90.0}",
    "gpus": "resources: {gpus_per_node: 8.0}",
    "schema": "schema: 2.0",
}


@pytest.mark.parametrize("name", CASE_003)
def test_case_003_a_whole_number_with_a_fraction_is_refused(name: str) -> None:
    assert errors(raw(CASE_003[name]))


def test_case_003_no_number_of_a_bundle_has_a_needless_fraction() -> None:
    for name in BUNDLES:
        for process in manifest(made(name))["processes"]:
            assert not [w for w in process["argv"] if re.fullmatch(r"[0-9]+\.0", w)]


@pytest.mark.parametrize(("value", "arrives"), [("1e1", "1e1"), ("1.0e3", "1.0e3"), ("1.0e+3", "1.0e+3"), ("5e-1", "5e-1"), ("inf", "inf"), ("2.5", "2.5")])
def test_case_004_scientific_numbers_are_numbers_whatever_the_parser(value: str, arrives: str) -> None:
    bundle = from_text(raw(f"benchmark: {{type: sa-bench, isl: 8, osl: 8, concurrencies: [1], req_rate: {value}}}"))
    argv = processes(bundle)["bench"]["argv"]
    assert argv[argv.index("--request-rate") + 1] == arrives


def test_case_004_they_are_judged_as_numbers() -> None:
    text = "benchmark: {type: sa-bench, isl: 8, osl: 8, concurrencies: [1], random_range_ratio: 1e3}"
    assert errors(raw(text)) == ["benchmark.random_range_ratio: 1e3 is above the greatest value, 1"]


@pytest.mark.parametrize("text", ["model: {path: 'hf:a/b', container: 0.10}", "engine: {type: atom, version: 0.10}", "identity: {frameworks: {atom: 3.10}}"])
def test_case_006_a_version_is_text(text: str) -> None:
    assert errors(raw(text))


@pytest.mark.parametrize("tag", ["0.10", "v0.10", "1.10.0"])
def test_case_006_a_tag_keeps_its_zero(tag: str) -> None:
    bundle = from_text(raw(f"model: {{path: 'hf:a/b', container: 'image:{tag}'}}"))
    assert processes(bundle)["agg_0"]["image"] == f"image:{tag}"


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "n", '"on"', "tRUE"])
def test_case_007_words_stay_words(word: str) -> None:
    bundle = from_text(raw(f"environment: {{FEATURE_X: {word}}}"))
    assert processes(bundle)["agg_0"]["env"]["FEATURE_X"] == word.strip('"')
    bundle = from_text(raw(f"roles: {{agg: {{nodes: 1, workers: 1, args: {{x-mode: {word}}}}}}}"))
    assert processes(bundle)["agg_0"]["argv"][-2:] == ["--x-mode", word.strip('"')]


def test_case_007_booleans_are_refused_as_values_of_variables() -> None:
    assert len(errors(raw("environment: {A: true, B: False, N: 1}"))) == 2


CASE_009: dict[str, tuple[str, list[str] | None]] = {
    "false": ("enable_prefix_caching: false", ["--no-enable_prefix_caching"]),
    "negative": ("no-enable_prefix_caching: true", ["--no-enable_prefix_caching"]),
    "null": ("x: null", None),
    "empty_text": ('x: ""', ["--x", ""]),
    "empty_list": ("x: []", None),
    "both": ("enable_prefix_caching: true, no-enable_prefix_caching: true", None),
    "false_on_a_switch": ("enforce-eager: false", None),
    "false_on_an_unknown_flag": ("x-thing: false", None),
}


@pytest.mark.parametrize("name", CASE_009)
def test_case_009_nothing_is_dropped_silently(name: str) -> None:
    args, words = CASE_009[name]
    text = raw(f"roles: {{agg: {{nodes: 1, workers: 1, args: {{{args}}}}}}}")
    if words is None:
        assert errors(text)
    else:
        assert processes(from_text(text))["agg_0"]["argv"][-len(words) :] == words


HOSTILE = ('{"use_cache":true,"n":4}', "it's \"both\"", "\\", "$HOME-", "`id`", "!", "*", "~", "a\nb", "🙂", "")


def test_case_011_json_and_hostile_text_arrive_byte_for_byte(tmp_path: Path) -> None:
    texts = [text for text in HOSTILE if "$HOME" not in text] + ["$", "$(id)"]
    args = {f"x-{n}": text for n, text in enumerate(texts)} | {"hf-overrides": HOSTILE[0]}
    bundle = from_text(recipe(roles={"agg": {"nodes": 1, "workers": 1, "args": args}}))
    rig = Rig(tmp_path, put(bundle, tmp_path / "bundle"))
    (record,) = rig.run("agg_0", "roles/agg.sh", "0")
    rig.check(processes(bundle)["agg_0"], record)
    assert record.argv[-1] == HOSTILE[0]
    assert [w for w in record.argv if w in texts] == [*texts, HOSTILE[0]]


@pytest.mark.parametrize("args", [{}, {"x": "a  b"}, {f"x-{n}": "a  b" for n in range(5)}])
def test_case_012_commands_are_arrays(args: dict[str, str], tmp_path: Path) -> None:
    bundle = from_text(recipe(roles={"agg": {"nodes": 1, "workers": 1, "args": args}}))
    text = script(bundle, "roles/agg.sh")
    assert '\nexec "${argv[@]}"' in text and "bash -c" not in text and "eval" not in text
    rig = Rig(tmp_path, put(bundle, tmp_path / "bundle"))
    (record,) = rig.run("agg_0", "roles/agg.sh", "0")
    assert record.argv.count("a  b") == len(args)


@pytest.mark.parametrize("name", BUNDLES)
def test_case_015_no_text_stands_in_a_heredoc(name: str) -> None:
    for path, file in made(name).files.items():
        if path.startswith("roles/") or path in ("run.sbatch", "bench.sh"):
            assert not re.search(r"(?<!<)<<-?\s*['\"]?[A-Za-z_]", file.content.decode()), path


CASE_015 = "cat <<'EOF'\nEOF\ntrailing \\\nand \\n and `tick`"


def test_case_015_a_command_is_a_file_of_its_own() -> None:
    bundle = from_text(recipe(benchmark={"type": "custom", "command": CASE_015}))
    assert script(bundle, "bench_command.sh") == CASE_015 + "\n"
    assert "tick" not in script(bundle, "bench.sh")


CASE_017 = {
    "name": {"name": "sweep(4,8)#1"},
    "comment": {"sbatch_directives": {"comment": "tp 8 # x"}},
    "partition": {"slurm": {"partition": "gpu\n#SBATCH --nodes=99"}},
    "final_newline": {"slurm": {"account": "me\n"}},
    "constraint": {"sbatch_directives": {"constraint": "a;b"}},
}


@pytest.mark.parametrize("name", CASE_017)
def test_case_017_directives_take_only_harmless_text(name: str) -> None:
    assert errors(recipe(**CASE_017[name]))


def test_case_017_the_refused_character_is_named() -> None:
    assert 'holds "(", which is not allowed here' in errors(recipe(name="sweep(4,8)"))[0]


@pytest.mark.parametrize(
    "text",
    ["roles: {agg: {nodes: 1, workers: 1, nodes: 2}}", "schema: 2\nroles: {agg: {nodes: 1, workers: 1}}\nroles: {}", "a: {b: {c: {d: 1, d: 2}}}"],
)
def test_case_018_duplicates_are_refused_with_both_lines(text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        from_text(text)
    problem = next(p for p in caught.value.problems if "duplicate key" in p.message)
    assert problem.line >= 1 and re.search(r"first used on line \d", problem.message)


def test_case_020_an_unknown_key_of_a_profile_ends_the_generation() -> None:
    assert errors(recipe(), "default_partitoin: x") == ["default_partitoin: unknown key; did you mean default_partition?"]


def test_case_020_depth_outdated_and_misplaced() -> None:
    found = errors(recipe(roles={"agg": {"nodes": 1, "workers": 1, "gpu_per_node": 8}}, resources={"agg_workers": 1}, time_limit="1"))
    assert any(m.startswith("roles.agg.gpu_per_node: unknown key") for m in found)
    assert any("in layout 2 this is roles.agg.workers" in m for m in found)
    assert any("its place is slurm.time_limit" in m for m in found)


def test_case_021_text_is_no_boolean() -> None:
    (message,) = errors(recipe(), 'use_exclusive_sbatch_directive: "false"')
    assert "write it without quotes" in message
    with pytest.raises(RecipeError):
        from_text(recipe(), None, ("set", 'model.offline="no"'))
    assert manifest(from_text(recipe(), None, ("set", "model.offline=true"), ("set", "environment.HF_HOME=/hf")))["recipe"]["model"]["offline"] is True


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf", b""])
def test_case_023_crlf_and_bom(content: bytes) -> None:
    from shipped import Source, generate

    text = recipe(benchmark={"type": "custom", "command": "line one\nline two\n"}).encode().replace(b"\n", b"\r\n")
    bundle = generate(Source("r", "recipe.yaml", content + text), None, [])
    assert script(bundle, "bench_command.sh") == "line one\nline two\n"
    assert all(b"\r" not in f.content for p, f in bundle.files.items() if p.endswith((".sh", ".sbatch")) and not p.startswith("lib/"))


def test_case_024_a_flag_that_the_build_does_not_know_is_said_before_the_job() -> None:
    known = {"path": "hf:a/b", "container": "rocm/atom-dev:nightly_202606101403"}
    try:
        bundle = from_text(recipe(model=known, roles={"agg": {"nodes": 1, "workers": 1, "args": {"kv-cache-dtype-x": "fp8"}}}))
    except RecipeError as error:
        said = error.problems
    else:
        said = bundle.findings
    assert any("roles.agg.args.kv-cache-dtype-x" == p.path and "not" in p.message for p in said)


@pytest.mark.parametrize("key", ["tensor-parallel-siz", "tens", "kv-transfer", "server-po"])
def test_case_024_abbreviations_that_argparse_would_take_for_ours(key: str) -> None:
    (message,) = errors(recipe(roles={"agg": {"nodes": 1, "workers": 1, "args": {key: "1"}}}))
    assert "it can stand for" in message


CASE_025 = {
    "two_prefills_on_a_node": pd({"workers": 2, "gpus": 4}),
    "all_on_one": pd({"gpus": 4}, {"nodes": "colocate", "gpus": 4}),
    "eight_decodes": pd({}, {"workers": 8, "gpus": 1}),
}


@pytest.mark.parametrize("name", CASE_025)
def test_case_025_every_socket_has_its_own_port_and_the_table_is_shown(name: str) -> None:
    bundle = from_text(recipe(roles=CASE_025[name]))
    seen: set[tuple[int, int]] = set()
    for one in bundle.plan.listeners:
        ports = {(one.node, port) for port in range(one.first, one.last + 1)}
        assert not ports & seen
        seen |= ports
    table = script(bundle).partition("PLAN_LISTEN=(\n")[2].partition("\n)")[0]
    assert table.count("\n") + 1 == len(bundle.plan.listeners)


def test_case_027_internal_ports_have_bases_of_their_own() -> None:
    found = processes(from_text(recipe(roles=pd({"nodes": 2, "workers": 8, "gpus": 2}))))
    for node in (0, 1):
        envs = [p["env"] for p in found.values() if p["role"] == "prefill" and p["node"] == node]
        bases = sorted(int(env["ATOM_DP_BASE_PORT"]) for env in envs)
        masters = {env["ATOM_DP_MASTER_PORT"] for env in envs}
        assert len(masters) == 4 and all(b - a >= 8 for a, b in zip(bases, bases[1:]))


def test_case_029_handshake_ports_have_the_stride_of_the_worker_s_gpus() -> None:
    found = processes(from_text(recipe(roles=pd({"gpus": 4}, {"nodes": "colocate", "gpus": 4}))))
    assert [found[s]["ports"]["handshake"] for s in ("prefill_0", "decode_0")] == [5400, 5404]
    for step in ("prefill_0", "decode_0"):
        config = json.loads(found[step]["argv"][found[step]["argv"].index("--kv-transfer-config") + 1].replace("${NODE_0_ADDR}", "x"))
        assert config["handshake_port"] == found[step]["ports"]["handshake"]


CASE_030 = {
    "tp_by_hand": {"gpus": 4, "args": {"tp": 8}},
    "long_form": {"gpus": 4, "args": {"tensor-parallel-size": 8}},
    "short_form": {"gpus": 4, "args": {"-tp": 8}},
    "dp_rest": {"gpus": 8, "args": {"data-parallel-size": 3}},
}


@pytest.mark.parametrize("name", CASE_030)
def test_case_030_gpus_are_the_one_source_of_the_sizes(name: str) -> None:
    assert errors(recipe(roles={"agg": {"nodes": 1, "workers": 1, **CASE_030[name]}}))


def test_case_030_a_valid_dp_layout_is_accepted() -> None:
    args = {"data-parallel-size": 2, "max-num-seqs": 64}
    argv = processes(from_text(recipe(roles={"agg": {"nodes": 1, "workers": 1, "gpus": 8, "args": args}})))["agg_0"]["argv"]
    assert argv[argv.index("-tp") + 1] == "4"


def test_case_032_addresses_are_those_of_the_worker_s_own_node() -> None:
    found = processes(from_text(recipe(roles=pd({"nodes": 2, "workers": 2}, {"nodes": 2, "workers": 2}))))
    for process in (p for p in found.values() if p["role"] in ("prefill", "decode")):
        own = f"${{NODE_{process['node']}_ADDR}}"
        assert process["env"]["ATOM_HOST_IP"] == own
        assert f'"proxy_ip":"{own}"' in " ".join(process["argv"])
    assert [found[s]["node"] for s in ("prefill_0", "prefill_1", "decode_0", "decode_1")] == [0, 1, 2, 3]


def test_case_032_a_role_script_takes_the_address_of_its_index(tmp_path: Path) -> None:
    bundle = from_text(recipe(roles=pd({"nodes": 2, "workers": 2})))
    rig = Rig(tmp_path, put(bundle, tmp_path / "bundle"), extra={"NODE_0_ADDR": "10.9.0.3", "NODE_1_ADDR": "10.9.0.1"})
    for index, address in (("0", "10.9.0.3"), ("1", "10.9.0.1")):
        (record,) = rig.run(f"prefill_{index}", "roles/prefill.sh", index)
        assert record.env["ATOM_HOST_IP"] == address


def test_case_033_concurrency_above_what_decode_takes_is_said() -> None:
    bench = SWEEP | {"concurrencies": [64, 512]}
    bundle = from_text(recipe(roles=pd({"args": {"max-num-seqs": 128}}, {"args": {"max-num-seqs": 128}}), benchmark=bench))
    said = [f for f in manifest(bundle)["findings"] if "512" in f["message"] and "max-num-seqs" in f["message"]]
    assert said, manifest(bundle)["findings"]
    (warning,) = [f for f in said if f["severity"] == "warning"]
    assert warning["code"]


def test_scripts_of_the_cases_are_bash(tmp_path: Path) -> None:
    folder = put(from_text(recipe(roles=pd({"workers": 2}))), tmp_path)
    for path in folder.rglob("*.sh"):
        assert subprocess.run(["bash", "-n", str(path)]).returncode == 0
