-- What an action was done to: a node, and the name of the site, which outlives the site.
ALTER TABLE audit_entry ADD COLUMN node_id UUID;
ALTER TABLE audit_entry ADD COLUMN site TEXT;
UPDATE audit_entry SET node_id = (SELECT node.id FROM node WHERE node.id::text = audit_entry.subject);
UPDATE audit_entry SET node_id = (SELECT run.node_id FROM run WHERE run.id::text = audit_entry.subject)
  WHERE node_id IS NULL;
UPDATE audit_entry SET site = CASE WHEN action LIKE 'site.%' THEN subject
  ELSE COALESCE(detail ->> 'site', (SELECT site.name FROM site JOIN node ON node.site_id = site.id
    WHERE node.id = audit_entry.node_id), (SELECT site.name FROM site
    JOIN batch ON batch.site_id = site.id WHERE action LIKE 'batch.%' AND batch.name = subject)) END;
CREATE INDEX audit_entry_node ON audit_entry (node_id, id);
CREATE INDEX audit_entry_site ON audit_entry (site, id);
