-- Pages of the list of nodes begin after a hostname and an identifier.
CREATE INDEX node_page ON node (hostname, id);
DROP INDEX node_hostname;
