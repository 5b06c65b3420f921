-- Experiments between host images.
CREATE TABLE experiment (
  name TEXT PRIMARY KEY,
  site_id UUID NOT NULL REFERENCES site (id),
  spec JSONB NOT NULL,
  state TEXT NOT NULL,
  created_by TEXT NOT NULL,
  reason TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  ended_at BIGINT
);
CREATE TABLE experiment_run (
  experiment TEXT NOT NULL REFERENCES experiment (name),
  node_id UUID NOT NULL REFERENCES node (id),
  arm TEXT NOT NULL,
  second BOOLEAN NOT NULL,
  run_id UUID REFERENCES run (id),
  PRIMARY KEY (experiment, node_id, arm)
);
