-- Addresses that an onboarding named once, each a row to lock: of two that name one address at the same
-- moment, the second looks for holders once the first is committed. Only where several write at once.
CREATE TABLE address_lock (
  address TEXT PRIMARY KEY
);
