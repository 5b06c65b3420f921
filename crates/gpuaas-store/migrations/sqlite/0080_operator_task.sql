-- Tasks that an operator asked for; those of runs have neither.
ALTER TABLE node_task ADD COLUMN actor TEXT;
ALTER TABLE node_task ADD COLUMN reason TEXT;
CREATE INDEX node_task_operator ON node_task (node_id, created_at) WHERE actor IS NOT NULL;
-- What keeps an agent from its work; empty: nothing.
ALTER TABLE heartbeat ADD COLUMN troubles TEXT NOT NULL DEFAULT '';
