-- How many daemons have died while a run was going on; one that is going on now counts, until it leaves.
CREATE TABLE deaths (
    run_id TEXT NOT NULL PRIMARY KEY,
    number BIGINT NOT NULL
);
