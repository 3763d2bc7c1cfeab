-- One row to a page: a row takes about a tenth of its page, and the fill factor sends the next row to the next page. What
-- is left free takes the row's later versions, so that updates touch no index and the table does not grow.
-- The variable scale is the table's size in MiB; a MiB holds 128 pages of 8 kB. With the variable partitions it is one table
-- in so many parts, by hash, which can lie in tablespaces of their own.
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
