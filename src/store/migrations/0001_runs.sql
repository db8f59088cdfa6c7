-- Runs as of their newest event. Times are microseconds since 1970 in UTC, `body` is a message of forge.control.v1.
CREATE TABLE runs (
    run_id TEXT NOT NULL PRIMARY KEY,
    request_id TEXT,
    agent TEXT NOT NULL,
    -- Paths, and labels as key=value, each between line breaks, so that one can be looked for.
    suites TEXT NOT NULL,
    labels TEXT NOT NULL,
    state TEXT NOT NULL,
    bundle TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    finished_at BIGINT,
    last_sequence BIGINT NOT NULL,
    body BYTEA NOT NULL
);
CREATE UNIQUE INDEX runs_by_request ON runs (request_id);
CREATE INDEX runs_by_state ON runs (state, run_id);

-- The logs of runs, in blocks: messages RunEvent, each behind its length, numbered without gaps.
CREATE TABLE events (
    run_id TEXT NOT NULL,
    first_sequence BIGINT NOT NULL,
    last_sequence BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (run_id, first_sequence)
);

-- Verdicts on the cases of runs, in short; the log has all of them.
CREATE TABLE cases (
    run_id TEXT NOT NULL,
    suite TEXT NOT NULL,
    case_id TEXT NOT NULL,
    repetition BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    cause TEXT,
    blame TEXT,
    flaky BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (run_id, suite, case_id, repetition)
);
CREATE INDEX cases_by_id ON cases (case_id, run_id);

-- Agents that clients have added.
CREATE TABLE agents (
    name TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    labels TEXT NOT NULL
);
