-- What the agent of a node last read of the devices that slices are made of, and the map of it.
CREATE TABLE slice_topology (
  node_id BLOB PRIMARY KEY REFERENCES node (id),
  -- The task that the agent answered.
  task_id BLOB NOT NULL,
  observed_at BIGINT NOT NULL,
  report TEXT NOT NULL,
  map TEXT NOT NULL,
  -- The map of the discovery before; null: there was none.
  previous_at BIGINT,
  previous_map TEXT
);
