-- What the agent of a node last read of the devices that slices are made of, and the map of it.
CREATE TABLE slice_topology (
  node_id UUID PRIMARY KEY REFERENCES node (id),
  -- The task that the agent answered.
  task_id UUID NOT NULL,
  observed_at BIGINT NOT NULL,
  report JSONB NOT NULL,
  map JSONB NOT NULL,
  -- The map of the discovery before; null: there was none.
  previous_at BIGINT,
  previous_map JSONB
);
