-- One row per page: a row takes about 10 % of its page, and the fill factor moves the next row to the next page. The free
-- space takes later row versions, so that updates change no index and the table does not grow.
-- The variable scale is the size of the table in MiB, which is 128 pages of 8 kB. The optional variable partitions is the
-- number of hash partitions, which can be in separate tablespaces.
CREATE TABLE block (
    id integer NOT NULL,
    updates integer NOT NULL,
    filler varchar(672) NOT NULL
)
\if :{?partitions}
PARTITION BY HASH (id);
SELECT format('CREATE TABLE block_%s PARTITION OF block FOR VALUES WITH (MODULUS %s, REMAINDER %s) WITH (fillfactor = 10)',
    part, :partitions, part - 1)
FROM generate_series(1, :partitions) AS part \gexec
\else
WITH (fillfactor = 10);
\endif
ALTER TABLE block ALTER filler SET STATISTICS 0;
ALTER TABLE block ALTER filler SET STORAGE PLAIN;
INSERT INTO block
SELECT n, 0, (SELECT string_agg(md5(n::text || '.' || part::text), '') FROM generate_series(1, 21) AS part)
FROM generate_series(1, :scale * 128) AS n;
ALTER TABLE block ADD PRIMARY KEY (id);
