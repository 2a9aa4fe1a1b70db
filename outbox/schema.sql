-- Processes that start at once do this one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('penstock_outbox_schema', 0));

CREATE TABLE IF NOT EXISTS penstock_outbox (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    policy   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    job      jsonb NOT NULL, -- without its body
    body     bytea NOT NULL,
    inserted timestamptz NOT NULL DEFAULT now(),
    retry_at timestamptz NOT NULL DEFAULT now(), -- of the first row of a key: not submitted before
    error    text -- why the row is set aside; NULL makes it wait again
);

CREATE INDEX IF NOT EXISTS penstock_outbox_waiting ON penstock_outbox (policy, key, id)
    INCLUDE (retry_at) WHERE error IS NULL;

CREATE OR REPLACE FUNCTION penstock_outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Transactions that notify commit one after the other, so one of those that run at once does it
    -- for all. What commits behind it is found with the next notification, or the relay's poll.
    IF pg_try_advisory_xact_lock(hashtextextended('penstock_outbox_notify', 0)) THEN
        NOTIFY penstock_outbox;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER penstock_outbox_inserted AFTER INSERT ON penstock_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION penstock_outbox_notify();
