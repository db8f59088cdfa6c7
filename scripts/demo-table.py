"""Prints the results of `make demo` as one table, and exits with 1 if they are not as they should be."""

import json
import sys
from datetime import datetime
from pathlib import Path

LANGUAGES = {
    "python": ("Python", "pydantic-ai on the SDK"),
    "typescript": ("TypeScript", "AI SDK on the SDK"),
    "rust": ("Rust", "tonic, no SDK"),
}
# The cases of a suite that fail on purpose, and how many there are.
SUITES = {"weather.golden": (["gs-get-weather-011"], 11), "weather.labeled": ([], 8)}

results, codes = map(Path, sys.argv[1:])
row = "{:<16} {:<11} {:<23} {:>6} {:>7} {:>8}".format
print(row("suite", "language", "built with", "passed", "failed", "time"))
print("─" * 76)
wrong = []
for suite, (on_purpose, number) in SUITES.items():
    for language, (name, built_with) in LANGUAGES.items():
        code = int((codes / f"{suite}.{language}.code").read_text())
        file = results / f"{suite}.{language}.json"
        if not file.exists():
            wrong.append(f"{suite} against {name}: forgectl exited with {code}, and there is no result")
            continue
        result = json.loads(file.read_text())
        cases = [case for case in result["cases"] if case["outcome"] == "passed"]
        failed = [case["id"] for case in result["cases"] if case["outcome"] != "passed"]
        began, ended = (datetime.fromisoformat(result[key][:23] + "+00:00") for key in ("timestamp", "finishedAt"))
        time = f"{(ended - began).total_seconds() * 1000:.0f} ms"
        print(row(suite, name, built_with, len(cases), len(failed), time))
        if failed != on_purpose or len(result["cases"]) != number or code != bool(on_purpose):
            wrong.append(
                f"{suite} against {name}: forgectl exited with {code}, of {len(result['cases'])} cases did not pass: "
                f"{', '.join(failed) or 'none'}; expected of {number}: {', '.join(on_purpose) or 'none'}"
            )
if wrong:
    sys.exit("\n".join(f"demo: {line}" for line in wrong))
