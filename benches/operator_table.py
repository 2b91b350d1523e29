"""Writes the table of operators by element type: python benches/operator_table.py [FOLDER] > docs/operators.md

FOLDER, by default target/opinfo-compile, has what `cargo xtask opinfo --compile` found: a folder for each type, in it a file for each operator
of PyTorch's operator tests.
"""

import argparse
import json
import pathlib

HEAD = """# Operators

What becomes of PyTorch's operators under `torch.compile(backend="litz")`, by element type, as PyTorch's own operator tests
call them. `cargo xtask opinfo --compile --dtype TYPE` runs them (three samples each, against eager mode), and `python benches/operator_table.py`
writes this table.

- **native**: kernels and routines of Litz compute it, in all samples.
- fallback: eager mode's operator is called for a part of it, at least in one sample; `litz.stats()` counts these calls.
- error: Litz refuses a sample, with a message.
- (blank): the operator does not take the type, or `aot_eager` is not right in the same run.
"""


def cell(path: pathlib.Path) -> str:
    """What became of an operator's samples, the worst of them."""
    results = [result for result in json.loads(path.read_text()) if result["verdict"] != "excluded"]
    if not results:
        return ""
    if any(result["verdict"] == "wrong" for result in results):
        return "WRONG"
    if any(result["verdict"] == "error" for result in results):
        return "error"
    return "fallback" if any(result.get("fallbacks") for result in results) else "**native**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default="target/opinfo-compile", help="what was found")
    folder = parser.parse_args().folder
    kinds = sorted((kind for kind in folder.iterdir() if kind.is_dir()), key=lambda kind: (kind.name != "f32", kind.name))
    table = {kind.name: {path.stem: cell(path) for path in kind.glob("*.json")} for kind in kinds}
    names = sorted({name for column in table.values() for name in column})
    print(HEAD)
    count = lambda column, what: sum(value == what for value in column.values())
    print("| type | operators | native | fallback | error |\n|---|---|---|---|---|")
    for kind, column in table.items():
        counts = [count(column, what) for what in ("**native**", "fallback", "error")]
        print(f"| {kind} | {sum(counts)} | {counts[0]} | {counts[1]} | {counts[2]} |")
    print(f"\n| operator | {' | '.join(table)} |\n|---|{'---|' * len(table)}")
    for name in names:
        print(f"| `{name}` | {' | '.join(column.get(name, '') for column in table.values())} |")


if __name__ == "__main__":
    main()
