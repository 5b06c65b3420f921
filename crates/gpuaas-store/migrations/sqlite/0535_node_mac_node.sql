-- What is corrected of a node's hardware replaces its addresses.
CREATE INDEX node_mac_node ON node_mac (node_id);
