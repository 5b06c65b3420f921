-- Whom the control plane begins the later runs of an experiment for; null: nobody, a person asks for them.
ALTER TABLE experiment ADD COLUMN requester TEXT;
