-- The span that asked for a run or a batch, where the request was traced.
ALTER TABLE run ADD COLUMN traceparent TEXT;
ALTER TABLE batch ADD COLUMN traceparent TEXT;
