-- What a site's region is known by: the identity that stands in our mark in it, or its address where
-- it has no mark. Sites of one region have the same.
ALTER TABLE site ADD COLUMN region TEXT;
-- The site's address in the form in which two spellings of one address are the same.
ALTER TABLE site ADD COLUMN region_url TEXT;
-- The region of the node's machine, written with its system_id: a machine belongs to one node at a
-- time, whichever site it was found through.
ALTER TABLE node ADD COLUMN region TEXT;
CREATE UNIQUE INDEX node_live_machine ON node (region, system_id)
  WHERE state NOT IN ('retired', 'detached', 'deleted')
  AND region IS NOT NULL AND system_id IS NOT NULL;
