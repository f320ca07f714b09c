CREATE TABLE ledger_version (one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL);
CREATE TABLE ledger_lines (
    line TEXT NOT NULL PRIMARY KEY,
    limit_epsilon_nanos BIGINT NOT NULL CHECK (limit_epsilon_nanos >= 0),
    limit_delta_attos BIGINT NOT NULL CHECK (limit_delta_attos >= 0),
    spent_epsilon_nanos BIGINT NOT NULL CHECK (spent_epsilon_nanos >= 0),
    spent_delta_attos BIGINT NOT NULL CHECK (spent_delta_attos >= 0),
    reserved_epsilon_nanos BIGINT NOT NULL CHECK (reserved_epsilon_nanos >= 0),
    reserved_delta_attos BIGINT NOT NULL CHECK (reserved_delta_attos >= 0),
    CHECK (spent_epsilon_nanos + reserved_epsilon_nanos <= limit_epsilon_nanos),
    CHECK (spent_delta_attos + reserved_delta_attos <= limit_delta_attos)
);
CREATE TABLE ledger_reservations (
    key TEXT NOT NULL PRIMARY KEY,
    line TEXT NOT NULL REFERENCES ledger_lines (line),
    asked_epsilon_nanos BIGINT NOT NULL CHECK (asked_epsilon_nanos >= 0),
    asked_delta_attos BIGINT NOT NULL CHECK (asked_delta_attos >= 0),
    purpose TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'aborted'))
);
CREATE TABLE ledger_entries (
    sequence BIGINT NOT NULL PRIMARY KEY CHECK (sequence >= 1),
    previous TEXT NOT NULL UNIQUE,
    contents TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE
);
INSERT INTO ledger_version VALUES (1, 1);
INSERT INTO ledger_lines VALUES ('{"relation":"replace-one","scope":"clicks","unit":{"ad_tech":null,"kind":"user","window":null},"window":null}', 4000000000, 1000000000000, 500000000, 10000000000, 500000000, 10000000000);
INSERT INTO ledger_lines VALUES ('{"relation":"replace-label","scope":"conversions","unit":{"ad_tech":null,"kind":"user-advertiser","window":{"origin":0,"seconds":604800}},"window":12}', 2000000000, 1000000000000, 0, 0, 0, 0);
INSERT INTO ledger_reservations VALUES ('clicks/model-1', '{"relation":"replace-one","scope":"clicks","unit":{"ad_tech":null,"kind":"user","window":null},"window":null}', 500000000, 10000000000, 'train the click model', 'committed');
INSERT INTO ledger_reservations VALUES ('clicks/model-2', '{"relation":"replace-one","scope":"clicks","unit":{"ad_tech":null,"kind":"user","window":null},"window":null}', 500000000, 10000000000, 'train it again', 'reserved');
INSERT INTO ledger_reservations VALUES ('conversions/labels-12', '{"relation":"replace-label","scope":"conversions","unit":{"ad_tech":null,"kind":"user-advertiser","window":{"origin":0,"seconds":604800}},"window":12}', 500000000, 10000000000, 'flip the labels of week 12', 'aborted');
INSERT INTO ledger_entries VALUES (1, '0000000000000000000000000000000000000000000000000000000000000000', '{"kind":"grant","limit":{"delta_attos":1000000000000,"epsilon_nanos":4000000000},"line":{"relation":"replace-one","scope":"clicks","unit":{"ad_tech":null,"kind":"user","window":null},"window":null}}', 'bcef4bc7b1855adb6043850000e2ee18028e3d1541b46edd7089e19762b811d9');
INSERT INTO ledger_entries VALUES (2, 'bcef4bc7b1855adb6043850000e2ee18028e3d1541b46edd7089e19762b811d9', '{"kind":"grant","limit":{"delta_attos":1000000000000,"epsilon_nanos":2000000000},"line":{"relation":"replace-label","scope":"conversions","unit":{"ad_tech":null,"kind":"user-advertiser","window":{"origin":0,"seconds":604800}},"window":12}}', '87aa1c551ad6ccf3a4993c3b55f9013b0d72990516f9acffb6d2976427fe4284');
INSERT INTO ledger_entries VALUES (3, '87aa1c551ad6ccf3a4993c3b55f9013b0d72990516f9acffb6d2976427fe4284', '{"amount":{"delta_attos":10000000000,"epsilon_nanos":500000000},"key":"clicks/model-1","kind":"reserve","line":{"relation":"replace-one","scope":"clicks","unit":{"ad_tech":null,"kind":"user","window":null},"window":null},"purpose":"train the click model"}', '138514258653f7eb4f2293f4eb6e42a380dd41af94d04559eceea35f11d51ef7');
INSERT INTO ledger_entries VALUES (4, '138514258653f7eb4f2293f4eb6e42a380dd41af94d04559eceea35f11d51ef7', '{"key":"clicks/model-1","kind":"commit"}', 'cc8419651780ceff616963c3564eb6d7b93e987bba881484219c0dd26ac0b591');
INSERT INTO ledger_entries VALUES (5, 'cc8419651780ceff616963c3564eb6d7b93e987bba881484219c0dd26ac0b591', '{"amount":{"delta_attos":10000000000,"epsilon_nanos":500000000},"key":"clicks/model-2","kind":"reserve","line":{"relation":"replace-one","scope":"clicks","unit":{"ad_tech":null,"kind":"user","window":null},"window":null},"purpose":"train it again"}', 'a4b81ee74b6b1ab0c92e708629cea4f55bf18a2d441eb610fbe574e9e65bea01');
INSERT INTO ledger_entries VALUES (6, 'a4b81ee74b6b1ab0c92e708629cea4f55bf18a2d441eb610fbe574e9e65bea01', '{"amount":{"delta_attos":10000000000,"epsilon_nanos":500000000},"key":"conversions/labels-12","kind":"reserve","line":{"relation":"replace-label","scope":"conversions","unit":{"ad_tech":null,"kind":"user-advertiser","window":{"origin":0,"seconds":604800}},"window":12},"purpose":"flip the labels of week 12"}', '16c0c5fb52c0c81ddc6852b1705ad1aa037966b0c768998c904dedcafcd8dee5');
INSERT INTO ledger_entries VALUES (7, '16c0c5fb52c0c81ddc6852b1705ad1aa037966b0c768998c904dedcafcd8dee5', '{"key":"conversions/labels-12","kind":"abort"}', '87cea1632557eeb5c2e2122f69e449529eb621b188898abf10285e0b9fd7eab5');
