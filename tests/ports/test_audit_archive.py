"""The archive of audit events: appended to by day, and any change of it is found."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.fakes.messages import NOON
from worker.adapters.audit_archive import AUDIT, INDEX, RESULTS, ArchiveError, AuditArchive
from worker.domain.audit.findings import ChainProblem

CHANGED, GAP = ChainProblem.ARCHIVE_CHANGED, ChainProblem.ARCHIVE_GAP


@pytest.fixture
def filled(tmp_path):
    """Two days of events, and a result in between."""
    archive = AuditArchive(tmp_path / "archive")
    archive.append(AUDIT, [(1, b"a"), (2, b"b")], stored_at=NOON, kept_since=NOON)
    archive.append(RESULTS, [(7, b"r")], stored_at=NOON)
    archive.append(AUDIT, [(3, b"c")], stored_at=NOON)
    archive.append(AUDIT, [(4, b"d")], stored_at=NOON + timedelta(days=1))
    return archive


def problems(directory, head=""):
    return [finding.problem for finding in AuditArchive(directory).findings(head)]


def test_what_was_appended_is_read_back_in_order(filled):
    again = AuditArchive(filled.directory)
    assert [b"a", b"b", b"c", b"d"] == list(again.lines(AUDIT))
    assert [b"r"] == list(again.lines(RESULTS))
    assert (4, 7) == (again.newest(AUDIT).last, again.newest(RESULTS).last)
    assert again.parts == filled.parts
    assert [] == problems(filled.directory, filled.head)
    names = {path.name for path in filled.directory.iterdir()}
    day, next_day = (f"{at:%Y-%m-%d}" for at in (NOON, NOON + timedelta(days=1)))
    assert {INDEX, f"audit-{day}.jsonl", f"audit-{next_day}.jsonl", f"results-{day}.jsonl"} == names


def test_an_older_head_still_vouches(filled):
    head = filled.head
    filled.append(AUDIT, [(5, b"e")], stored_at=NOON)
    assert [] == problems(filled.directory, head)
    assert [CHANGED] == problems(filled.directory, "0" * 64)


@pytest.mark.parametrize("kept", [b"", b"a\n", b"a\nb\nx\nd\n"])
def test_a_file_that_was_changed_or_cut_off(filled, kept):
    path = filled.directory / filled.parts[0].file
    path.write_bytes(kept)
    assert CHANGED in problems(filled.directory)
    if len(kept) < 6:
        with pytest.raises(ArchiveError, match="cut off"):
            AuditArchive(filled.directory).append(AUDIT, [(5, b"e")], stored_at=NOON)


def test_a_file_that_is_gone(filled):
    (filled.directory / filled.parts[-1].file).unlink()
    assert [CHANGED] == problems(filled.directory)
    assert [b"a", b"b", b"c"] == list(AuditArchive(filled.directory).lines(AUDIT))


@pytest.mark.parametrize(("line", "found"), [(0, [CHANGED]), (2, [CHANGED, CHANGED, GAP]), (3, [])])
def test_a_line_of_the_index_that_was_removed(filled, line, found):
    """The last one can only be missed by who has kept the head."""
    path, head = filled.directory / INDEX, filled.head
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    assert set(found) <= set(problems(filled.directory))
    assert CHANGED in problems(filled.directory, head)


def test_messages_that_were_deleted_before_they_were_exported(filled):
    filled.append(AUDIT, [(9, b"i")], stored_at=NOON)
    [finding] = filled.findings()
    assert (GAP, True) == (finding.problem, "messages 5 to 8" in finding.detail)


@pytest.mark.parametrize("size", [2, 3, 5, 10**6, 10**18, 10**30])
def test_an_index_with_other_sizes(filled, size):
    path = filled.directory / INDEX
    path.write_bytes(path.read_bytes().replace(b'"size":4', b'"size":%d' % size, 1))
    assert CHANGED in problems(filled.directory)
    assert set(AuditArchive(filled.directory).lines(AUDIT)) <= {b"a", b"b", b"c", b"d", b""}


@pytest.mark.parametrize(
    ("field", "other"),
    [(b'"size":4', b'"size":-4'), (b'"kept_since":"', b'"kept_since":"2026-06-04T12:00:00","x":"')],
)
def test_an_index_with_values_that_no_export_writes(filled, field, other):
    path = filled.directory / INDEX
    path.write_bytes(path.read_bytes().replace(field, other, 1))
    with pytest.raises(ArchiveError, match="line 1 is not"):
        AuditArchive(filled.directory)


def test_parts_that_overlap(filled):
    filled.append(AUDIT, [(4, b"d")], stored_at=NOON)
    [finding] = filled.findings()
    assert (GAP, "audit: message 4 follows 4") == (finding.problem, finding.detail)


@pytest.mark.parametrize("line", [b"{}", b"[]", b"\xff", b""])
def test_an_index_that_is_none(tmp_path, line):
    (tmp_path / INDEX).write_bytes(line + b"\n")
    with pytest.raises(ArchiveError, match="line 1 is not"):
        AuditArchive(tmp_path)


def test_an_index_that_names_other_files(filled):
    path = filled.directory / INDEX
    path.write_bytes(path.read_bytes().replace(b'"file":"audit-', b'"file":"../audit-'))
    with pytest.raises(ArchiveError, match="does not belong to an archive"):
        AuditArchive(filled.directory)


def test_a_directory_without_an_archive_is_an_empty_one(tmp_path):
    archive = AuditArchive(tmp_path / "none")
    assert ("", [], None, []) == (
        archive.head,
        archive.parts,
        archive.newest(AUDIT),
        list(archive.lines(AUDIT)),
    )
