-- The five transactions, one function each. Every function returns the output of the transaction on its terminal.
-- The client draws the inputs. A last name is passed as its number (0 to 999) with customer 0.

CREATE FUNCTION last_name(number integer) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN
    (ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[number / 100 + 1]
    || (ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[number / 10 % 10 + 1]
    || (ARRAY['BAR', 'OUGHT', 'ABLE', 'PRI', 'PRES', 'ESE', 'ANTI', 'CALLY', 'ATION', 'EING'])[number % 10 + 1];

-- The middle customer of a last name in the order of first names, rounded up.
CREATE FUNCTION customer_named(w integer, d integer, number integer) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
    found integer[] := ARRAY(
        SELECT c_id FROM customer WHERE c_w_id = w AND c_d_id = d AND c_last = last_name(number) ORDER BY c_first
    );
BEGIN
    RETURN found[(cardinality(found) + 1) / 2];
END $$;

-- The quantities of at most fifteen lines, 1 to 10 each, from the digits of one number, so that a client sends only one.
CREATE FUNCTION line_quantities(digits bigint) RETURNS integer[] LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ARRAY[
    (digits % 10)::integer + 1, (digits / 10 % 10)::integer + 1, (digits / 100 % 10)::integer + 1,
    (digits / 1000 % 10)::integer + 1, (digits / 10000 % 10)::integer + 1, (digits / 100000 % 10)::integer + 1,
    (digits / 1000000 % 10)::integer + 1, (digits / 10000000 % 10)::integer + 1, (digits / 100000000 % 10)::integer + 1,
    (digits / 1000000000 % 10)::integer + 1, (digits / 10000000000 % 10)::integer + 1, (digits / 100000000000 % 10)::integer + 1,
    (digits / 1000000000000 % 10)::integer + 1, (digits / 10000000000000 % 10)::integer + 1, (digits / 100000000000000 % 10)::integer + 1
];

-- NEW ORDER. Stock rows are locked in the order of (supplying warehouse, item), so that orders cannot deadlock. An UPDATE
-- changes a row once even if it is joined several times. Of lines with the same item and supplier, the set-based UPDATE
-- therefore changes one, and the others follow one by one. With an unknown item total is NULL, and the caller rolls back.
CREATE FUNCTION enter_order(
    w integer, d integer, c integer, lines integer, items integer[], supplies integer[], quantities integer[],
    OUT order_id integer, OUT entry_date timestamptz, OUT last text, OUT credit text, OUT discount numeric,
    OUT warehouse_tax numeric, OUT district_tax numeric, OUT total numeric,
    OUT line_numbers integer[], OUT names text[], OUT stocks integer[], OUT brands text[], OUT prices numeric[], OUT amounts numeric[]
) LANGUAGE plpgsql AS $$
DECLARE
    done integer;
    goods numeric;
    line record;
    it record;
    st record;
BEGIN
    SELECT w_tax, c_discount, c_last, c_credit INTO warehouse_tax, discount, last, credit
    FROM warehouse, customer WHERE w_id = w AND c_w_id = w AND c_d_id = d AND c_id = c;

    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d
    RETURNING d_tax, d_next_o_id - 1 INTO district_tax, order_id;

    entry_date := now();
    INSERT INTO orders (o_entry_d, o_w_id, o_d_id, o_id, o_c_id, o_ol_cnt, o_all_local)
    VALUES (entry_date, w, d, order_id, c, lines, (w = ALL (supplies[1:lines]))::integer);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (w, d, order_id);

    WITH taken AS (
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= quantity + 10 THEN s_quantity - quantity ELSE s_quantity - quantity + 91 END,
            s_ytd = s_ytd + quantity,
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (supply <> w)::integer
        FROM (
            SELECT number::integer, i_id, supply, quantity, i_price, i_name, i_data
            FROM unnest(items[1:lines], supplies[1:lines], quantities[1:lines]) WITH ORDINALITY AS asked (item, supply, quantity, number)
            JOIN item ON i_id = item
            ORDER BY supply, i_id
        ) AS wanted
        WHERE s_w_id = supply AND s_i_id = i_id
        RETURNING number, i_id, supply, quantity, i_name, i_price, i_price * quantity AS amount, s_quantity,
            CASE WHEN i_data LIKE '%ORIGINAL%' AND s_data LIKE '%ORIGINAL%' THEN 'B' ELSE 'G' END AS brand,
            CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05
                WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END AS place
    ), written AS (
        INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
        SELECT w, d, order_id, number, i_id, supply, quantity, amount, place FROM taken
    )
    SELECT count(*), sum(amount), array_agg(number), array_agg(i_name), array_agg(s_quantity), array_agg(brand), array_agg(i_price),
        array_agg(amount)
    INTO done, goods, line_numbers, names, stocks, brands, prices, amounts
    FROM taken;

    IF done < lines THEN
        FOR line IN
            SELECT item, supply, quantity, number::integer
            FROM unnest(items[1:lines], supplies[1:lines], quantities[1:lines]) WITH ORDINALITY AS asked (item, supply, quantity, number)
            WHERE line_numbers IS NULL OR number <> ALL (line_numbers)
            ORDER BY supply, item
        LOOP
            SELECT i_name, i_price, i_data INTO it FROM item WHERE i_id = line.item;
            IF NOT FOUND THEN
                RETURN;
            END IF;
            UPDATE stock SET
                s_quantity = CASE WHEN s_quantity >= line.quantity + 10 THEN s_quantity - line.quantity
                    ELSE s_quantity - line.quantity + 91 END,
                s_ytd = s_ytd + line.quantity,
                s_order_cnt = s_order_cnt + 1,
                s_remote_cnt = s_remote_cnt + (line.supply <> w)::integer
            WHERE s_w_id = line.supply AND s_i_id = line.item
            RETURNING s_quantity, s_data,
                CASE d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03 WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05
                    WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END AS place
            INTO st;
            INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info)
            VALUES (w, d, order_id, line.number, line.item, line.supply, line.quantity, it.i_price * line.quantity, st.place);
            goods := goods + it.i_price * line.quantity;
            line_numbers := line_numbers || line.number;
            names := names || it.i_name::text;
            stocks := stocks || st.s_quantity;
            brands := brands || CASE WHEN it.i_data LIKE '%ORIGINAL%' AND st.s_data LIKE '%ORIGINAL%' THEN 'B' ELSE 'G' END;
            prices := prices || it.i_price;
            amounts := amounts || it.i_price * line.quantity;
        END LOOP;
    END IF;

    total := round(goods * (1 - discount) * (1 + warehouse_tax + district_tax), 2);
END $$;

-- PAYMENT, by customer number, or by last name if that is 0.
CREATE FUNCTION take_payment(
    w integer, d integer, customer_w integer, customer_d integer, c integer, name_number integer, amount numeric,
    OUT payment_date timestamptz, OUT warehouse_address text[], OUT district_address text[], OUT customer_id integer,
    OUT customer_name text[], OUT customer_address text[], OUT phone text, OUT since timestamptz, OUT credit text,
    OUT credit_limit numeric, OUT discount numeric, OUT balance numeric, OUT notes text
) LANGUAGE plpgsql AS $$
DECLARE
    warehouse_name text;
    district_name text;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w
    RETURNING w_name, ARRAY[w_street_1, w_street_2, w_city, w_state, w_zip] INTO warehouse_name, warehouse_address;

    UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d
    RETURNING d_name, ARRAY[d_street_1, d_street_2, d_city, d_state, d_zip] INTO district_name, district_address;

    customer_id := CASE WHEN c = 0 THEN customer_named(customer_w, customer_d, name_number) ELSE c END;
    UPDATE customer SET
        c_balance = c_balance - amount,
        c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC'
            THEN left(concat_ws(' ', c_id, c_d_id, c_w_id, d, w, amount) || ' ' || c_data, 500) ELSE c_data END
    WHERE c_w_id = customer_w AND c_d_id = customer_d AND c_id = customer_id
    RETURNING ARRAY[c_first, c_middle, c_last], ARRAY[c_street_1, c_street_2, c_city, c_state, c_zip], c_phone, c_since, c_credit,
        c_credit_lim, c_discount, c_balance, CASE WHEN c_credit = 'BC' THEN left(c_data, 200) END
    INTO customer_name, customer_address, phone, since, credit, credit_limit, discount, balance, notes;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'district %.% has no customer % (name %)', customer_w, customer_d, c, name_number;
    END IF;

    payment_date := now();
    INSERT INTO history (h_date, h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_data)
    VALUES (payment_date, customer_id, customer_d, customer_w, d, w, amount, warehouse_name || '    ' || district_name);
END $$;

-- ORDER STATUS: the customer's last order with its lines.
CREATE FUNCTION show_order(
    w integer, d integer, c integer, name_number integer,
    OUT customer_id integer, OUT customer_name text[], OUT balance numeric, OUT order_id integer, OUT entry_date timestamptz,
    OUT carrier integer, OUT items integer[], OUT supplies integer[], OUT quantities integer[], OUT amounts numeric[],
    OUT delivery_dates timestamptz[]
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    customer_id := CASE WHEN c = 0 THEN customer_named(w, d, name_number) ELSE c END;
    SELECT ARRAY[c_first, c_middle, c_last], c_balance INTO customer_name, balance
    FROM customer WHERE c_w_id = w AND c_d_id = d AND c_id = customer_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'district %.% has no customer % (name %)', w, d, c, name_number;
    END IF;

    SELECT o_id, o_entry_d, o_carrier_id INTO order_id, entry_date, carrier
    FROM orders WHERE o_w_id = w AND o_d_id = d AND o_c_id = customer_id ORDER BY o_id DESC LIMIT 1;

    SELECT array_agg(ol_i_id), array_agg(ol_supply_w_id), array_agg(ol_quantity), array_agg(ol_amount), array_agg(ol_delivery_d)
    INTO items, supplies, quantities, amounts, delivery_dates
    FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = order_id;
END $$;

-- DELIVERY: the oldest order of each of the ten districts that has one. Two deliveries of a warehouse conflict at the oldest
-- order of the first district, and the later one takes the next order.
CREATE FUNCTION deliver_orders(w integer, carrier integer, OUT districts integer[], OUT order_ids integer[]) LANGUAGE plpgsql AS $$
BEGIN
    WITH oldest AS MATERIALIZED (
        SELECT d, (SELECT no_o_id FROM new_order WHERE no_w_id = w AND no_d_id = d ORDER BY no_o_id LIMIT 1 FOR UPDATE) AS o
        FROM generate_series(1, 10) AS d
    ), gone AS (
        DELETE FROM new_order USING oldest WHERE no_w_id = w AND no_d_id = d AND no_o_id = o RETURNING d, o
    ), carried AS (
        UPDATE orders SET o_carrier_id = carrier FROM gone WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING d, o, o_c_id AS c
    ), delivered AS (
        UPDATE order_line SET ol_delivery_d = now() FROM gone WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o RETURNING d, ol_amount
    ), owed AS (
        SELECT d, o, c, amount FROM carried JOIN (SELECT d, sum(ol_amount) AS amount FROM delivered GROUP BY d) AS sums USING (d)
    ), charged AS (
        UPDATE customer SET c_balance = c_balance + amount, c_delivery_cnt = c_delivery_cnt + 1
        FROM owed WHERE c_w_id = w AND c_d_id = d AND c_id = c RETURNING d, o
    )
    SELECT array_agg(d), array_agg(o) INTO districts, order_ids FROM charged;
END $$;

-- STOCK LEVEL: the number of items in the district's last twenty orders with low stock.
CREATE FUNCTION count_low_stock(w integer, d integer, threshold integer) RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE
    upcoming integer;
    low integer;
BEGIN
    SELECT d_next_o_id INTO upcoming FROM district WHERE d_w_id = w AND d_id = d;
    SELECT count(DISTINCT s_i_id) INTO low
    FROM order_line JOIN stock ON s_w_id = w AND s_i_id = ol_i_id
    WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id >= upcoming - 20 AND ol_o_id < upcoming AND s_quantity < threshold;
    RETURN low;
END $$;
