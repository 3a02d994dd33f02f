"""What InferenceX' multi-node launcher gives a model (2026-08-22, models_atom.yaml and server_atom.sh)."""

from typing import Callable, NamedTuple

from srtgen.document import Document
from srtgen.inferencex.draft import Item, variables, words
from srtgen.inferencex.reading import Cursor

_KEYS = frozenset(
    "env tp_dp_env ep_dp_env mtp_flags kv_cache_flags online_quant_config online_quant_dpa_config block_size "
    "mem_frac_static max_model_len max_num_seqs max_num_batched_tokens scheduler_delay_factor".split()
    + [f"{role}{kind}_dp_flags" for role in ("", "prefill_", "decode_") for kind in ("tp", "ep")]
)


class Model(NamedTuple):
    """The settings of one model; every flag and variable as the launcher's file has it."""

    at: Cursor

    def text(self, key: str, default: str = "") -> str:
        return self.at.text(key, default)

    def args(self, key: str) -> tuple[Item, ...]:
        return self._parsed(key, words)

    def env(self, key: str) -> tuple[Item, ...]:
        return self._parsed(key, variables)

    def dp_args(self, role: str, kind: str) -> tuple[Item, ...]:
        """Flags of DP attention; `kind` is tp or ep. The role's own, else those of both."""
        own = f"{role}_{kind}_dp_flags"
        return self.args(own if self.at.has(own) else f"{kind}_dp_flags")

    def _parsed(self, key: str, parse: Callable[[str], tuple[Item, ...]]) -> tuple[Item, ...]:
        try:
            return parse(self.text(key))
        except ValueError as error:
            self.at.at(key).refuse(str(error))


def find(document: Document, model: str, at: Cursor) -> Model:
    """The entry of a Hugging Face id: the launcher looks for its last part. `at` is where the model is named."""
    root, name = Cursor(document), model.rsplit("/", 1)[-1]
    if not isinstance(root.value, dict) or name not in root.value:
        at.refuse(f"{document.file} has no entry {name}, which would hold the flags of {model}")
    entry = root.at(name)
    entry.only(_KEYS)
    return Model(entry)
