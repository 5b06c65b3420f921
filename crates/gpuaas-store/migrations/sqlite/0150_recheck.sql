-- A parked run may look again by itself, so it can be due as any other. Those that parked before are
-- looked at once; that says whether and when they look again.
DROP INDEX run_due;
CREATE INDEX run_due ON run (due_at) WHERE status IN ('running', 'waiting', 'parked');
UPDATE run SET due_at = 0 WHERE status = 'parked';
