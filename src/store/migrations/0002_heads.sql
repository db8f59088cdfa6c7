-- What lists show of a run, and what changes with every event: a message Run of forge.control.v1 without what may be large. `body` holds
-- all of it, and is written only when more changes than that.
ALTER TABLE runs ADD COLUMN head BYTEA;
