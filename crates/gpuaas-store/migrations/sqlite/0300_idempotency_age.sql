-- Notes of what keys made go when the answers to them go.
CREATE INDEX idempotency_record_created ON idempotency_record (created_at);
