"""Parsers of the commands that measure and tune: audit, study, eval, compile."""

from __future__ import annotations

import argparse

from salon.options import Commands, add_command, add_limits, add_models

__all__ = ["add_audit", "add_compile", "add_eval", "add_study"]


def add_audit(commands: Commands) -> None:
    """Add ``salon audit``."""
    summary = "Test whether the citations of a roundtable are real influences."
    command = add_command(commands, "audit", "auditing", summary)
    command.add_argument("folder", metavar="DIR", help="folder of the session; the audit is kept in DIR/audit")
    size = command.add_argument_group("size")
    size.add_argument("--seeds", type=int, default=3, metavar="N", help="sessions per way of citing; 0 for none (3)")
    size.add_argument("--samples", type=int, default=3, metavar="N", help="proposals per hidden entity (3)")
    size.add_argument("--sources", type=int, default=2, metavar="N", help="cited entities hidden per idea at most (2)")
    size.add_argument("--edges", type=int, default=60, metavar="N", help="citations judged at most (60)")
    size.add_argument("--seed", type=int, metavar="S", help="decides what is drawn (0)")
    add_models(command)
    add_limits(command, "each session, and each test")
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def add_study(commands: Commands) -> None:
    """Add ``salon study``."""
    summary = "Study what a setting does to ideas, over many sessions."
    command = add_command(commands, "study", "studying", summary)
    command.add_argument("kind", choices=("duration",), help="duration: minutes of discussion")
    study = command.add_argument_group("study")
    study.add_argument("--topic", default="AI smart glasses for everyday consumers", metavar="TEXT")
    study.add_argument("--minutes", default="0,5,10,15,20,25", metavar="M,M...", help="durations (0,5,10,15,20,25)")
    study.add_argument("--sessions", type=int, default=5, metavar="N", help="sessions of each, with equal seeds (5)")
    study.add_argument(
        "--citations", default="required,optional", metavar="HOW,...", help="required, optional, off (the first two)"
    )
    study.add_argument("--personas", metavar="N|FILE", help="how many to invent, or a CSV, JSON or YAML pool (5)")
    study.add_argument("--ideas", type=int, metavar="N", help="ideas each persona may propose (2)")
    study.add_argument("--votes", type=int, metavar="N", help="votes each persona may cast (5)")
    study.add_argument(
        "--facilitator", action=argparse.BooleanOptionalAction, default=None, help="have a facilitator (yes)"
    )
    study.add_argument("--embedder", metavar="NAME", help="embedding model (packaged all-MiniLM-L6-v2)")
    study.add_argument("--seed", type=int, metavar="S", help="the first seed (0)")
    study.add_argument(
        "--judged", action=argparse.BooleanOptionalAction, default=True, help="have a judge rate the ideas (yes)"
    )
    add_models(command)
    add_limits(command, "each session, not their sum,")
    output = command.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder of the study; one that holds it is gone on with")
    output.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--dry-run", action="store_true", help="print expected sessions, calls and cost")


def add_eval(commands: Commands) -> None:
    """Add ``salon eval``."""
    summary = "Evaluate methods on a benchmark: quality by judges, diversity, cost. Run again, it goes on."
    command = add_command(commands, "eval", "evaluating", summary)
    command.add_argument(
        "what", nargs="?", choices=("calibrate",), help="calibrate: hold a judge against people's labels instead"
    )
    data = command.add_argument_group("benchmark")
    _bench_options(data)
    data.add_argument("--split", choices=("train", "validation", "test"), help="part of the benchmark (all)")
    size = command.add_argument_group("methods and size")
    size.add_argument(
        "--methods",
        metavar="M,M...",
        help="programs (roundtable, yes-and, debate), baselines (direct, voting-lens, ...), with settings as in "
        "debate(agents=3,rounds=1); folders of saved programs; module:callable; NAME=M names one "
        "(debate,voting-lens,direct)",
    )
    size.add_argument(
        "--ablation", choices=("k", "agents", "rounds", "peers", "lenses", "components"), help="ready sets of debates"
    )
    size.add_argument("--queries", type=int, default=3, metavar="N", help="tasks, drawn by the seed (3)")
    size.add_argument("--runs", type=int, default=3, metavar="N", help="answers of each method to each query (3)")
    size.add_argument("--groups", type=int, metavar="G", help="answers whose diversity is measured together (runs, 5)")
    size.add_argument("--baseline", metavar="METHOD", help="what the others are tested against (direct, or the first)")
    size.add_argument("--seed", type=int, metavar="S", help="decides tasks, runs and draws of judges (0)")
    size.add_argument("--embedder", metavar="NAME", help="embedding model (packaged all-MiniLM-L6-v2)")
    judges = _judge_options(command)
    judges.add_argument("--drawn", type=int, metavar="N", help="judges drawn from the panel for each answer (all)")
    judges.add_argument(
        "--pairs", type=int, default=1, metavar="N", help="runs in which methods are compared in pairs (1)"
    )
    judges.add_argument(
        "--similar",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="grade how alike answers are, for fluency (liveideabench only)",
    )
    judges.add_argument("--threshold", type=float, default=6.0, metavar="Q", help="quality for gated diversity (6)")
    judges.add_argument("--labels", metavar="FILE", help="calibrate: solutions that people have labelled")
    judges.add_argument("--limit", type=int, default=60, metavar="N", help="calibrate: solutions judged at most (60)")
    add_models(command)
    add_limits(command, "the evaluation")
    where = command.add_argument_group("where")
    where.add_argument("--engine", choices=("local", "ray"), default="local", help="what does the jobs (local)")
    where.add_argument("--address", metavar="ADDRESS", help="of a Ray cluster (one on this machine)")
    where.add_argument("--out", metavar="DIR", help="folder of the evaluation; one that holds it is gone on with")
    where.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--dry-run", action="store_true", help="print expected answers, calls and cost")


def _judge_options(command: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that say who judges, and return their group."""
    judges = command.add_argument_group("judges")
    judges.add_argument("--judge", action="append", metavar="MODEL", help="may be repeated: a panel (the model itself)")
    judges.add_argument(
        "--judged", action=argparse.BooleanOptionalAction, default=True, help="have answers judged (yes)"
    )
    return judges


def _bench_options(data: argparse._ArgumentGroup) -> None:
    """Add the options that say which benchmark is used."""
    data.add_argument(
        "--bench",
        default="topics",
        metavar="NAME|FILE",
        help="topics, liveideabench, macgyver, argument-topics, arena-hard-creative, or a file of tasks (topics)",
    )
    data.add_argument("--data", metavar="FILE", help="file of a named benchmark, or hub:OWNER/NAME@REVISION")
    data.add_argument("--task-column", metavar="NAME", help="column of the tasks in a file of your own")
    data.add_argument("--rubric", metavar="NAME|FILE", help="what answers are judged by (the benchmark's)")


def add_compile(commands: Commands) -> None:
    """Add ``salon compile``."""
    summary = "Tune a program's numbers and prompts for quality and diversity, and save it. Run again, it goes on."
    command = add_command(commands, "compile", "compiling", summary)
    command.add_argument(
        "program",
        metavar="PROGRAM",
        help="roundtable, debate, yes-and or a baseline, with settings as in debate(agents=3,rounds=1), or a folder of "
        "a saved one",
    )
    data = command.add_argument_group("data")
    _bench_options(data)
    data.add_argument("--queries", type=int, default=4, metavar="N", help="tasks to tune on, from train (4)")
    data.add_argument("--held-out", type=int, default=4, metavar="N", help="tasks to verify on, from test (4)")
    data.add_argument("--groups", type=int, default=3, metavar="G", help="sessions on each task, measured together (3)")
    search = command.add_argument_group("search")
    search.add_argument(
        "--trials", type=int, default=20, metavar="N", help="variants tried, the defaults included (20)"
    )
    search.add_argument(
        "--prompts", choices=("gepa", "mipro", "bootstrap", "none"), default="none", help="tune the prompts too (none)"
    )
    search.add_argument("--only", metavar="NAME", help="tune the prompt of one predictor alone, e.g. revise")
    search.add_argument(
        "--objectives",
        default="quality,vendi",
        metavar="O,O...",
        help="quality, vendi, distance, div_bleu, gated, tokens, usd, depth, absorption, balance (quality,vendi)",
    )
    search.add_argument(
        "--tune",
        action="append",
        metavar="NAME[=LOW:HIGH]",
        help="a number to search, with its range; may be repeated (those that the program names)",
    )
    search.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="O=VALUE",
        help="the most of a cost, or the least of a gain, that a winner may have, for what is among the --objectives, "
        "e.g. --objectives quality,vendi,tokens --limit tokens=20000; may be repeated",
    )
    search.add_argument(
        "--sampler", choices=("tpe", "nsga2", "gp", "random", "grid"), default="tpe", help="of the numbers (tpe)"
    )
    search.add_argument(
        "--pick",
        choices=("diverse", "quality", "balanced", "cheapest"),
        help="which of the front: the most diverse within 1%% of the best quality, the best, the knee, the cheapest "
        "(the first that the objectives say)",
    )
    search.add_argument("--workers", type=int, default=1, metavar="N", help="trials under way at once (1)")
    search.add_argument("--storage", metavar="URL", help="Optuna storage that several machines share (DIR/study.log)")
    search.add_argument("--seed", type=int, metavar="S", help="decides tasks, sessions and the search (0)")
    judges = _judge_options(command)
    judges.add_argument("--reflection", metavar="MODEL", help="writes better prompts (the participants' model)")
    add_models(command)
    add_limits(command, "the tuning")
    output = command.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder of the compiled program; gone on with if it is one")
    output.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--dry-run", action="store_true", help="print expected sessions, calls and cost")
