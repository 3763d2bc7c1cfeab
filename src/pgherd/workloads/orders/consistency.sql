WITH line AS MATERIALIZED (
    SELECT ol_w_id AS w, ol_d_id AS d, ol_o_id AS o, count(*) AS lines, count(ol_delivery_d) AS delivered,
        coalesce(sum(ol_amount) FILTER (WHERE ol_delivery_d IS NOT NULL), 0) AS amount
    FROM order_line GROUP BY 1, 2, 3
), placed AS MATERIALIZED (
    SELECT coalesce(o_w_id, no_w_id, line.w) AS w, coalesce(o_d_id, no_d_id, line.d) AS d, coalesce(o_id, no_o_id, line.o) AS o,
        o_c_id AS c, o_id IS NULL AS without_order, o_ol_cnt, o_carrier_id, no_o_id,
        coalesce(lines, 0) AS lines, coalesce(delivered, 0) AS delivered, coalesce(amount, 0) AS amount
    FROM orders
    FULL JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
    FULL JOIN line ON line.w = coalesce(o_w_id, no_w_id) AND line.d = coalesce(o_d_id, no_d_id) AND line.o = coalesce(o_id, no_o_id)
), per_district AS MATERIALIZED (
    SELECT d_w_id AS w, d_id AS d, d_ytd, d_next_o_id, placed.*, fresh.*, paid, deliveries
    FROM district
    LEFT JOIN (
        SELECT o_w_id, o_d_id, count(*) AS orders, max(o_id) AS last_order, sum(o_ol_cnt) AS said FROM orders GROUP BY 1, 2
    ) AS placed ON o_w_id = d_w_id AND o_d_id = d_id
    LEFT JOIN (
        SELECT no_w_id, no_d_id, count(*) AS new_orders, min(no_o_id) AS first_new, max(no_o_id) AS last_new FROM new_order GROUP BY 1, 2
    ) AS fresh ON no_w_id = d_w_id AND no_d_id = d_id
    LEFT JOIN (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2) AS history ON h_w_id = d_w_id AND h_d_id = d_id
    LEFT JOIN (
        SELECT c_w_id, c_d_id, sum(c_delivery_cnt) AS deliveries FROM customer GROUP BY 1, 2
    ) AS served ON c_w_id = d_w_id AND c_d_id = d_id
), per_warehouse AS MATERIALIZED (
    SELECT w_id AS w, w_ytd, sum(d_ytd) AS districts, sum(paid) AS paid FROM warehouse LEFT JOIN per_district ON w = w_id GROUP BY 1, 2
), per_customer AS MATERIALIZED (
    SELECT c_w_id AS w, c_d_id AS d, c_id AS c, c_balance, c_ytd_payment, coalesce(bought, 0) AS bought, coalesce(paid, 0) AS paid
    FROM customer
    LEFT JOIN (SELECT w, d, c, sum(amount) AS bought FROM placed WHERE NOT without_order GROUP BY 1, 2, 3) AS goods
        ON w = c_w_id AND d = c_d_id AND c = c_id
    LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2, 3) AS payments
        ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
), lines_per_district AS MATERIALIZED (
    SELECT ol_w_id AS w, ol_d_id AS d, count(*) AS lines FROM order_line GROUP BY 1, 2
)
SELECT 1, count(*), min(format('warehouse %s: %s, districts %s', w, w_ytd, districts)) FROM per_warehouse
WHERE w_ytd IS DISTINCT FROM districts
UNION ALL
SELECT 2, count(*), min(format('district %s.%s: next order %s, largest order %s, largest new order %s', w, d, d_next_o_id, last_order, last_new))
FROM per_district WHERE d_next_o_id - 1 IS DISTINCT FROM last_order OR d_next_o_id - 1 <> last_new
UNION ALL
SELECT 3, count(*), min(format('district %s.%s: %s new orders between %s and %s', w, d, new_orders, first_new, last_new))
FROM per_district WHERE last_new - first_new + 1 <> new_orders
UNION ALL
SELECT 4, count(*), min(format('district %s.%s: %s lines, orders say %s', w, d, lines, said))
FROM per_district FULL JOIN lines_per_district USING (w, d) WHERE said IS DISTINCT FROM lines
UNION ALL
SELECT 5, count(*), min(format('order %s.%s.%s: carrier %s', w, d, o, coalesce(o_carrier_id::text, 'none')))
FROM placed WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL) AND NOT (without_order AND no_o_id IS NULL)
UNION ALL
SELECT 6, count(*), min(format('order %s.%s.%s: %s lines, says %s', w, d, o, lines, o_ol_cnt)) FROM placed WHERE lines IS DISTINCT FROM o_ol_cnt
UNION ALL
SELECT 7, count(*), min(format('order %s.%s.%s: %s of %s lines delivered, carrier %s', w, d, o, delivered, lines, coalesce(o_carrier_id::text, 'none')))
FROM placed WHERE delivered <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE lines END
UNION ALL
SELECT 8, count(*), min(format('warehouse %s: %s, history %s', w, w_ytd, paid)) FROM per_warehouse WHERE w_ytd IS DISTINCT FROM paid
UNION ALL
SELECT 9, count(*), min(format('district %s.%s: %s, history %s', w, d, d_ytd, paid)) FROM per_district WHERE d_ytd IS DISTINCT FROM paid
UNION ALL
SELECT 10, count(*), min(format('customer %s.%s.%s: balance %s, delivered %s, paid %s', w, d, c, c_balance, bought, paid))
FROM per_customer WHERE c_balance <> bought - paid
UNION ALL
SELECT 11, count(*), min(format('district %s.%s: %s orders, %s new, %s deliveries', w, d, orders, new_orders, deliveries))
FROM per_district WHERE orders - coalesce(new_orders, 0) IS DISTINCT FROM 2100 + deliveries
UNION ALL
SELECT 12, count(*), min(format('customer %s.%s.%s: balance %s and payments %s, delivered %s', w, d, c, c_balance, c_ytd_payment, bought))
FROM per_customer WHERE c_balance + c_ytd_payment <> bought
