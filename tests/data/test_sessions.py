"""Many sessions as one data set, from memory and from folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from salon.data import sessions_to_dataset
from salon.data.sessions import SESSION_FEATURES

from salon import Session, UserError

Made = Callable[..., Session]
TABLES = list(SESSION_FEATURES)


@pytest.fixture
def small(made: Made) -> Session:
    said = [
        ("comment", 1, "wet hands", []),
        ("facilitation", 2, "and you?", []),
        ("idea", 2, "Gloves", ["C1"]),
        ("vote", 1, "warm", ["I1"]),
    ]
    return made(["Ann", "Bo"], said, topic="Cold", seed=2**70)


def saved(session: Session, folder: Path) -> Path:
    session.save(folder)
    return folder


def rows(data: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "session"} for row in data]


@pytest.mark.parametrize("what", TABLES)
def test_a_folder_gives_what_its_session_gives(what: str, small: Session, hostile: Session, tmp_path: Path) -> None:
    for n, session in enumerate((small, hostile)):
        folder = saved(session, tmp_path / f"run{n}")
        data = sessions_to_dataset([session, folder, str(folder)], what)
        length = len(session.to_frame(what))
        assert data["session"] == ["0"] * length + [f"run{n}"] * 2 * length
        one, two, three = (rows(data.select(range(n * length, (n + 1) * length))) for n in range(3))
        assert one == two == three
        assert [row["id"] for row in one] == list(session.to_frame(what)["id"])


@pytest.mark.parametrize("what", TABLES)
def test_sessions_of_every_program_are_alike_from_memory_and_folder(
    what: str, loopback: Any, quick_embeddings: None, tmp_path: Path
) -> None:
    import dspy

    from salon import Debate, YesAnd

    people = [{"name": "Ada", "sketch": "Ada mends bicycles."}, {"name": "Bo", "sketch": "Bo nurses at night."}]
    with dspy.context(lm=loopback.lm()):
        held = [
            Debate(agents=3, rounds=1, k=1)(task="Bicycles").session,
            YesAnd(experts=people, threshold=0, max_agent_turns=2)(problem="Ice", person=["Hello", "/sage"]).session,
        ]
    folders = [saved(session, tmp_path / session.name) for session in held]
    data = sessions_to_dataset(folders, what)
    assert rows(data) == rows(sessions_to_dataset(held, what))
    assert set(data["session"]) == {session.name for session in held if len(session.to_frame(what))}


@pytest.mark.parametrize("what", TABLES)
def test_nothing_is_a_data_set_with_the_same_features(what: str, small: Session, made: Made, tmp_path: Path) -> None:
    features = sessions_to_dataset([small], what).features
    assert list(features) == list(SESSION_FEATURES[what])
    empty = made([], [])
    for sessions in ([], [empty], [saved(empty, tmp_path / "empty")]):
        data = sessions_to_dataset(sessions, what)
        assert data.features == features
        assert sum(row["id"] != "" for row in data) == 0
    joined = datasets.concatenate_datasets([sessions_to_dataset([], what), sessions_to_dataset([small], what)])
    assert len(joined) == len(small.to_frame(what))


def test_types_are_those_of_the_table(small: Session) -> None:
    (idea,) = sessions_to_dataset(iter([small]))
    assert idea == {
        "session": "0", "rank": 1, "id": "I1", "title": "Gloves", "description": "That is: Gloves", "author": "Bo",
        "votes": 1, "voters": ["Ann"], "cites": ["C1"], "depth": 1, "program": "Roundtable", "topic": "Cold",
        "seed": str(2**70), "status": "complete",
    }  # fmt: skip
    private = sessions_to_dataset([small], "transcript")
    assert private["private"] == [False, True, False, False]
    frame = sessions_to_dataset([small], "votes").to_pandas()
    assert frame["minute"].dtype == "float64"


def test_folders_of_one_name_are_told_apart_by_their_paths(small: Session, tmp_path: Path) -> None:
    folders = [saved(small, tmp_path / place / "run") for place in ("a", "b")]
    alone = saved(small, tmp_path / "other")
    assert sessions_to_dataset([*folders, alone])["session"] == [*map(str, folders), "other"]


def test_a_folder_without_a_document_is_told_what_to_do(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=r"no session\.json in .*salon export"):
            sessions_to_dataset([folder])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"version": 2}', b'{"version": 1}',
        b'{"version": 1, "inputs": {}, "program": "x", "seed": 1, "status": "x", "ideas": [], "events": []}',
        b'{"version": 1, "inputs": {"topic": "x"}, "program": "x", "seed": 1, "status": "x", "ideas": [{"rank": 1}]}',
        b'{"version": 1, "inputs": {"topic": "x"}, "program": "x", "seed": 1, "status": "x", "ideas": 7}',
    ],
)  # fmt: skip
def test_a_damaged_document_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "session.json").write_bytes(content)
    with pytest.raises(UserError, match=r"session\.json") as caught:
        sessions_to_dataset([tmp_path])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("field", "value"), [("votes", "many"), ("rank", None), ("voters", "Ann"), ("cites", [1]), ("depth", 2**80)]
)
def test_a_value_of_another_type_is_refused(field: str, value: Any, small: Session, tmp_path: Path) -> None:
    folder = saved(small, tmp_path / "run")
    document = json.loads((folder / "session.json").read_text())
    document["ideas"][0][field] = value
    (folder / "session.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="cannot be used"):
        sessions_to_dataset([folder])


def test_mistakes_of_the_caller(small: Session, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no table 'people'.*Ask for ideas, transcript, votes"):
        sessions_to_dataset([small], "people")
    for path in (str(tmp_path), tmp_path):
        with pytest.raises(UserError, match=r"is one folder.*Give \[folder\]"):
            sessions_to_dataset(path)
    with pytest.raises(UserError, match="A session cannot be used"):
        sessions_to_dataset([7])  # type: ignore[list-item]


def test_the_loader_costs_nothing_before_it_is_used() -> None:
    import subprocess
    import sys

    code = (
        "import sys, salon; assert not {'datasets', 'pandas', 'dspy', 'pyarrow'} & set(sys.modules)\n"
        "assert callable(salon.data.sessions_to_dataset); assert 'datasets' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
