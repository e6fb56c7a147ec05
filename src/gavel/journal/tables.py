"""The tables of format 2, the same in SQLite and PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sql

FORMAT = 2
"""The format of the tables and of what this package writes into them."""

METADATA = sql.MetaData()
_Number = sql.BigInteger().with_variant(sql.Integer(), "sqlite")

ABOUT = sql.Table(
    "about",
    METADATA,
    sql.Column("format", sql.Integer, nullable=False),
    sql.Column("cluster", sql.Text, nullable=False),
    sql.Column("created", sql.Double, nullable=False),
    sql.Column("lost", _Number, nullable=False),
    sql.Column("checksum", sql.LargeBinary, nullable=False),
)
"""One row. `format` has the place and name it had in format 1, so that older versions read it and refuse."""

LEADER = sql.Table(
    "leader",
    METADATA,
    sql.Column("id", sql.Integer, primary_key=True),
    sql.Column("term", _Number, nullable=False),
    sql.Column("holder", sql.Text, nullable=False),
    sql.Column("since", sql.Double, nullable=False),
    sql.Column("last", _Number, nullable=False),
    sql.Column("last_checksum", sql.LargeBinary, nullable=False),
    sql.Column("base", _Number, nullable=False),
    sql.Column("base_checksum", sql.LargeBinary, nullable=False),
    sql.Column("finished", _Number, nullable=False),
)
"""One row: the leader, the last fact, the last fact that compaction removed, and the count of finished jobs."""

FACTS = sql.Table(
    "facts",
    METADATA,
    sql.Column("number", _Number, primary_key=True, autoincrement=False),
    sql.Column("term", _Number, nullable=False),
    sql.Column("time", sql.Double, nullable=False),
    sql.Column("kind", sql.Text, nullable=False),
    sql.Column("server", sql.Text),
    sql.Column("checksum", sql.LargeBinary, nullable=False),
    sql.Column("document", sql.LargeBinary, nullable=False),
    sql.Index("facts_time", "time"),
    sql.Index("facts_kind", "kind", "number"),
)
_has_server = FACTS.c.server.is_not(None)
sql.Index("facts_server", FACTS.c.server, FACTS.c.number, sqlite_where=_has_server, postgresql_where=_has_server)

FACT_JOBS = sql.Table(
    "fact_jobs",
    METADATA,
    sql.Column("job", sql.Text, primary_key=True),
    sql.Column("number", _Number, primary_key=True, autoincrement=False),
    sql.Index("fact_jobs_number", "number"),
    sqlite_with_rowid=False,
)
"""The jobs that a fact names; one row with `ANY_JOB` for a fact that names very many."""
ANY_JOB = "*"

KEPT = sql.Table(
    "kept",
    METADATA,
    sql.Column("number", _Number, primary_key=True, autoincrement=False),
    sql.Column("time", sql.Double, nullable=False),
    sql.Column("fact_checksum", sql.LargeBinary, nullable=False),
    sql.Column("checksum", sql.LargeBinary, nullable=False),
    sql.Column("document", sql.LargeBinary, nullable=False),
)
"""States after a fact; `fact_checksum` continues the chain of facts from there."""

FINISHED = sql.Table(
    "finished",
    METADATA,
    sql.Column("id", _Number, primary_key=True, autoincrement=False),
    sql.Column("state", sql.Text, nullable=False),
    sql.Column("name", sql.Text, nullable=False),
    sql.Column("template", sql.Text, nullable=False),
    sql.Column("entity", sql.Text, nullable=False),
    sql.Column("user_name", sql.Text, nullable=False),
    sql.Column("submitted", sql.Double, nullable=False),
    sql.Column("ended", sql.Double, nullable=False),
    sql.Column("checksum", sql.LargeBinary, nullable=False),
    sql.Column("document", sql.LargeBinary, nullable=False),
    sql.Index("finished_state", "state", "ended", "id"),
    sql.Index("finished_name", "name", "state", "ended", "id"),
    sql.Index("finished_entity", "entity", "state", "ended", "id"),
    sql.Index("finished_user", "user_name", "state", "ended", "id"),
    sql.Index("finished_ended", "ended", "id"),
)

LEARNED = sql.Table(
    "learned",
    METADATA,
    sql.Column("key", sql.Text, primary_key=True),
    sql.Column("checksum", sql.LargeBinary, nullable=False),
    sql.Column("document", sql.LargeBinary, nullable=False),
)

BESIDE = sql.MetaData()
"""Tables beside the facts; a journal of an earlier version gets them when it is opened."""

ACCOUNTS = sql.Table(
    "accounts",
    BESIDE,
    sql.Column("kind", sql.Text, primary_key=True),
    sql.Column("key", sql.Text, primary_key=True),
    sql.Column("document", sql.LargeBinary, nullable=False),
)
"""Users, tokens, enrolled agents and limits, as small documents."""

SECRETS = sql.Table(
    "secrets",
    BESIDE,
    sql.Column("job", sql.Text, primary_key=True),
    sql.Column("name", sql.Text, primary_key=True),
    sql.Column("sealed", sql.LargeBinary, nullable=False),
)
"""Encrypted; removed when the job has finished."""

NOTIFICATIONS = sql.Table(
    "notifications",
    BESIDE,
    sql.Column("id", sql.Text, primary_key=True),
    sql.Column("time", sql.Double, nullable=False),
    sql.Column("document", sql.LargeBinary, nullable=False),
)
"""Not delivered yet; written with the facts that they are about."""

AUDIT = sql.Table(
    "audit",
    BESIDE,
    sql.Column("number", _Number, primary_key=True, autoincrement=True),
    sql.Column("key", sql.Text, nullable=False, unique=True),
    sql.Column("time", sql.Double, nullable=False),
    sql.Column("user", sql.Text, nullable=False),
    sql.Column("acting_for", sql.Text, nullable=False),
    sql.Column("role", sql.Text, nullable=False),
    sql.Column("address", sql.Text, nullable=False),
    sql.Column("method", sql.Text, nullable=False),
    sql.Column("object", sql.Text, nullable=False),
    sql.Column("what", sql.Text, nullable=False),
    sql.Column("outcome", sql.Text, nullable=False),
    sql.Index("audit_time", "time"),
    sql.Index("audit_object", "object", "number"),
)
