-- Values of bundles' inputs of which each host of a site has its own, such as its address on the fabric.
CREATE TABLE host_value (
  site_id BLOB NOT NULL REFERENCES site (id),
  -- Name of the input.
  input TEXT NOT NULL,
  value TEXT NOT NULL,
  node_id BLOB NOT NULL REFERENCES node (id),
  PRIMARY KEY (site_id, input, value)
);
CREATE INDEX host_value_node ON host_value (node_id);
