-- Tasks that no agent fetched yet: read once a second by each control plane that shares a database.
CREATE INDEX node_task_waiting ON node_task (expires_at)
  WHERE finished_at IS NULL AND delivered_at IS NULL;
