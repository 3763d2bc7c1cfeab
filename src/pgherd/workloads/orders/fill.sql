-- The initial population in SQL, for psql without pgherd. Counts, keys and sizes are those of pgherd's loader. Letters are
-- hexadecimal digits. Requires schema.sql and functions.sql. The variable scale is the number of warehouses.
SET synchronous_commit = off;
SELECT setseed(0.2);

INSERT INTO item (i_id, i_im_id, i_price, i_name, i_data)
SELECT i, 1 + floor(random() * 10000), (100 + floor(random() * 9901)) / 100.0, left(md5(random()::text), 19),
    CASE WHEN random() < 0.1 THEN left(md5(random()::text), 10) || 'ORIGINAL' || left(md5(random()::text), 20)
        ELSE left(md5(random()::text) || md5(random()::text), 38) END
FROM generate_series(1, 100000) AS i;

INSERT INTO warehouse (w_id, w_ytd, w_tax, w_name, w_street_1, w_street_2, w_city, w_state, w_zip)
SELECT w, 300000, floor(random() * 2001) / 10000, left(md5(random()::text), 8), left(md5(random()::text), 15),
    left(md5(random()::text), 15), left(md5(random()::text), 15), left(md5(random()::text), 2),
    to_char(floor(random() * 10000), 'FM0000') || '11111'
FROM generate_series(1, :scale) AS w;

INSERT INTO district (d_w_id, d_id, d_next_o_id, d_ytd, d_tax, d_name, d_street_1, d_street_2, d_city, d_state, d_zip)
SELECT w, d, 3001, 30000, floor(random() * 2001) / 10000, left(md5(random()::text), 8), left(md5(random()::text), 15),
    left(md5(random()::text), 15), left(md5(random()::text), 15), left(md5(random()::text), 2),
    to_char(floor(random() * 10000), 'FM0000') || '11111'
FROM generate_series(1, :scale) AS w, generate_series(1, 10) AS d;

INSERT INTO customer (
    c_w_id, c_d_id, c_id, c_last, c_first, c_since, c_payment_cnt, c_delivery_cnt, c_credit_lim, c_discount, c_balance, c_ytd_payment,
    c_middle, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_data
)
SELECT w, d, c, name, left(md5(random()::text), 24 - length(name)), now(), 1, 0, 50000, floor(random() * 5001) / 10000, -10, 10, 'OE',
    left(md5(random()::text), 15), left(md5(random()::text), 15), left(md5(random()::text), 15), left(md5(random()::text), 2),
    to_char(floor(random() * 10000), 'FM0000') || '11111', to_char(floor(random() * 1e16), 'FM0000000000000000'),
    CASE WHEN random() < 0.1 THEN 'BC' ELSE 'GC' END,
    left(repeat(md5(random()::text) || md5(random()::text) || md5(random()::text) || md5(random()::text), 4), 400)
FROM (
    SELECT w, d, c, last_name(CASE WHEN c <= 1000 THEN c - 1 ELSE number END) AS name
    FROM (
        SELECT w, d, c, ((floor(random() * 256)::integer | floor(random() * 1000)::integer) + 157) % 1000 AS number
        FROM generate_series(1, :scale) AS w, generate_series(1, 10) AS d, generate_series(1, 3000) AS c
        OFFSET 0
    ) AS drawn
    OFFSET 0
) AS named;

INSERT INTO history (h_date, h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_data)
SELECT now(), c_id, c_d_id, c_w_id, c_d_id, c_w_id, 10, left(md5(random()::text), 18) FROM customer;

INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local, o_carrier_id)
SELECT w, d, o, c, now(), 5 + floor(random() * 11), 1, CASE WHEN o <= 2100 THEN 1 + floor(random() * 10) END
FROM (
    SELECT w, d, c, row_number() OVER (PARTITION BY w, d ORDER BY random()) AS o
    FROM generate_series(1, :scale) AS w, generate_series(1, 10) AS d, generate_series(1, 3000) AS c
) AS placed
ORDER BY w, d, o;

INSERT INTO new_order (no_w_id, no_d_id, no_o_id) SELECT o_w_id, o_d_id, o_id FROM orders WHERE o_id > 2100 ORDER BY 1, 2, 3;

INSERT INTO order_line (
    ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info, ol_delivery_d
)
SELECT o_w_id, o_d_id, o_id, number, 1 + floor(random() * 100000), o_w_id, 5,
    CASE WHEN o_carrier_id IS NULL THEN (1 + floor(random() * 999999)) / 100.0 ELSE 0 END, left(md5(random()::text), 24),
    CASE WHEN o_carrier_id IS NOT NULL THEN o_entry_d END
FROM orders, generate_series(1, o_ol_cnt) AS number;

INSERT INTO stock
SELECT w, i, 10 + floor(random() * 91), 0, 0, 0, left(md5(random()::text), 24), left(md5(random()::text), 24),
    left(md5(random()::text), 24), left(md5(random()::text), 24), left(md5(random()::text), 24), left(md5(random()::text), 24),
    left(md5(random()::text), 24), left(md5(random()::text), 24), left(md5(random()::text), 24), left(md5(random()::text), 24),
    CASE WHEN random() < 0.1 THEN left(md5(random()::text), 10) || 'ORIGINAL' || left(md5(random()::text), 20)
        ELSE left(md5(random()::text) || md5(random()::text), 38) END
FROM generate_series(1, :scale) AS w, generate_series(1, 100000) AS i;
