-- The nine tables. Columns of fixed width are first, so that PostgreSQL finds them without parsing strings.
-- warehouse and district have hot rows: a low fill factor leaves room for row versions on the same page.
-- Strings of a fixed length are varchar, because for char(n) PostgreSQL counts the characters of each value.

CREATE TABLE warehouse (
    w_id integer NOT NULL,
    w_ytd numeric(14, 2) NOT NULL,
    w_tax numeric(4, 4) NOT NULL,
    w_name varchar(10) NOT NULL,
    w_street_1 varchar(20) NOT NULL,
    w_street_2 varchar(20) NOT NULL,
    w_city varchar(20) NOT NULL,
    w_state varchar(2) NOT NULL,
    w_zip varchar(9) NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE district (
    d_w_id integer NOT NULL,
    d_id integer NOT NULL,
    d_next_o_id integer NOT NULL,
    d_ytd numeric(14, 2) NOT NULL,
    d_tax numeric(4, 4) NOT NULL,
    d_name varchar(10) NOT NULL,
    d_street_1 varchar(20) NOT NULL,
    d_street_2 varchar(20) NOT NULL,
    d_city varchar(20) NOT NULL,
    d_state varchar(2) NOT NULL,
    d_zip varchar(9) NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE customer (
    c_since timestamptz NOT NULL,
    c_w_id integer NOT NULL,
    c_d_id integer NOT NULL,
    c_id integer NOT NULL,
    c_payment_cnt integer NOT NULL,
    c_delivery_cnt integer NOT NULL,
    c_credit_lim numeric(12, 2) NOT NULL,
    c_discount numeric(4, 4) NOT NULL,
    c_balance numeric(12, 2) NOT NULL,
    c_ytd_payment numeric(12, 2) NOT NULL,
    c_first varchar(16) NOT NULL,
    c_middle varchar(2) NOT NULL,
    c_last varchar(16) NOT NULL,
    c_street_1 varchar(20) NOT NULL,
    c_street_2 varchar(20) NOT NULL,
    c_city varchar(20) NOT NULL,
    c_state varchar(2) NOT NULL,
    c_zip varchar(9) NOT NULL,
    c_phone varchar(16) NOT NULL,
    c_credit varchar(2) NOT NULL,
    c_data varchar(500) NOT NULL
) WITH (fillfactor = 90);

CREATE TABLE history (
    h_date timestamptz NOT NULL,
    h_c_id integer NOT NULL,
    h_c_d_id integer NOT NULL,
    h_c_w_id integer NOT NULL,
    h_d_id integer NOT NULL,
    h_w_id integer NOT NULL,
    h_amount numeric(6, 2) NOT NULL,
    h_data varchar(24) NOT NULL
);

CREATE TABLE new_order (
    no_w_id integer NOT NULL,
    no_d_id integer NOT NULL,
    no_o_id integer NOT NULL
);

CREATE TABLE orders (
    o_entry_d timestamptz NOT NULL,
    o_w_id integer NOT NULL,
    o_d_id integer NOT NULL,
    o_id integer NOT NULL,
    o_c_id integer NOT NULL,
    o_ol_cnt integer NOT NULL,
    o_all_local integer NOT NULL,
    o_carrier_id integer
) WITH (fillfactor = 90);

CREATE TABLE order_line (
    ol_w_id integer NOT NULL,
    ol_d_id integer NOT NULL,
    ol_o_id integer NOT NULL,
    ol_number integer NOT NULL,
    ol_i_id integer NOT NULL,
    ol_supply_w_id integer NOT NULL,
    ol_quantity integer NOT NULL,
    ol_amount numeric(6, 2) NOT NULL,
    ol_dist_info varchar(24) NOT NULL,
    ol_delivery_d timestamptz
) WITH (fillfactor = 90);

CREATE TABLE item (
    i_id integer NOT NULL,
    i_im_id integer NOT NULL,
    i_price numeric(5, 2) NOT NULL,
    i_name varchar(24) NOT NULL,
    i_data varchar(50) NOT NULL
);

CREATE TABLE stock (
    s_w_id integer NOT NULL,
    s_i_id integer NOT NULL,
    s_quantity integer NOT NULL,
    s_ytd integer NOT NULL,
    s_order_cnt integer NOT NULL,
    s_remote_cnt integer NOT NULL,
    s_dist_01 varchar(24) NOT NULL,
    s_dist_02 varchar(24) NOT NULL,
    s_dist_03 varchar(24) NOT NULL,
    s_dist_04 varchar(24) NOT NULL,
    s_dist_05 varchar(24) NOT NULL,
    s_dist_06 varchar(24) NOT NULL,
    s_dist_07 varchar(24) NOT NULL,
    s_dist_08 varchar(24) NOT NULL,
    s_dist_09 varchar(24) NOT NULL,
    s_dist_10 varchar(24) NOT NULL,
    s_data varchar(50) NOT NULL
) WITH (fillfactor = 90);

-- Only keys and compared columns have statistics, because ANALYZE of all columns would take longer than filling a small
-- database. For evenly distributed keys a sample of 3,000 rows is as good as one of 30,000, which takes longer than an
-- index. The largest target of a table determines the sample size, so no column may keep the default.
ALTER TABLE customer
    ALTER c_w_id SET STATISTICS 10,
    ALTER c_d_id SET STATISTICS 10,
    ALTER c_id SET STATISTICS 10,
    ALTER c_first SET STATISTICS 10,
    ALTER c_last SET STATISTICS 10,
    ALTER c_since SET STATISTICS 0,
    ALTER c_payment_cnt SET STATISTICS 0,
    ALTER c_delivery_cnt SET STATISTICS 0,
    ALTER c_credit_lim SET STATISTICS 0,
    ALTER c_discount SET STATISTICS 0,
    ALTER c_balance SET STATISTICS 0,
    ALTER c_ytd_payment SET STATISTICS 0,
    ALTER c_middle SET STATISTICS 0,
    ALTER c_street_1 SET STATISTICS 0,
    ALTER c_street_2 SET STATISTICS 0,
    ALTER c_city SET STATISTICS 0,
    ALTER c_state SET STATISTICS 0,
    ALTER c_zip SET STATISTICS 0,
    ALTER c_phone SET STATISTICS 0,
    ALTER c_credit SET STATISTICS 0,
    ALTER c_data SET STATISTICS 0;
ALTER TABLE history
    ALTER h_date SET STATISTICS 0,
    ALTER h_c_id SET STATISTICS 0,
    ALTER h_c_d_id SET STATISTICS 0,
    ALTER h_c_w_id SET STATISTICS 0,
    ALTER h_d_id SET STATISTICS 0,
    ALTER h_w_id SET STATISTICS 0,
    ALTER h_amount SET STATISTICS 0,
    ALTER h_data SET STATISTICS 0;
ALTER TABLE new_order
    ALTER no_w_id SET STATISTICS 10,
    ALTER no_d_id SET STATISTICS 10,
    ALTER no_o_id SET STATISTICS 10;
ALTER TABLE orders
    ALTER o_w_id SET STATISTICS 10,
    ALTER o_d_id SET STATISTICS 10,
    ALTER o_id SET STATISTICS 10,
    ALTER o_c_id SET STATISTICS 10,
    ALTER o_entry_d SET STATISTICS 0,
    ALTER o_ol_cnt SET STATISTICS 0,
    ALTER o_all_local SET STATISTICS 0,
    ALTER o_carrier_id SET STATISTICS 0;
ALTER TABLE order_line
    ALTER ol_w_id SET STATISTICS 10,
    ALTER ol_d_id SET STATISTICS 10,
    ALTER ol_o_id SET STATISTICS 10,
    ALTER ol_number SET STATISTICS 10,
    ALTER ol_i_id SET STATISTICS 10,
    ALTER ol_supply_w_id SET STATISTICS 0,
    ALTER ol_quantity SET STATISTICS 0,
    ALTER ol_amount SET STATISTICS 0,
    ALTER ol_dist_info SET STATISTICS 0,
    ALTER ol_delivery_d SET STATISTICS 0;
ALTER TABLE item
    ALTER i_id SET STATISTICS 10,
    ALTER i_im_id SET STATISTICS 0,
    ALTER i_price SET STATISTICS 0,
    ALTER i_name SET STATISTICS 0,
    ALTER i_data SET STATISTICS 0;
ALTER TABLE stock
    ALTER s_w_id SET STATISTICS 10,
    ALTER s_i_id SET STATISTICS 10,
    ALTER s_quantity SET STATISTICS 10,
    ALTER s_ytd SET STATISTICS 0,
    ALTER s_order_cnt SET STATISTICS 0,
    ALTER s_remote_cnt SET STATISTICS 0,
    ALTER s_dist_01 SET STATISTICS 0,
    ALTER s_dist_02 SET STATISTICS 0,
    ALTER s_dist_03 SET STATISTICS 0,
    ALTER s_dist_04 SET STATISTICS 0,
    ALTER s_dist_05 SET STATISTICS 0,
    ALTER s_dist_06 SET STATISTICS 0,
    ALTER s_dist_07 SET STATISTICS 0,
    ALTER s_dist_08 SET STATISTICS 0,
    ALTER s_dist_09 SET STATISTICS 0,
    ALTER s_dist_10 SET STATISTICS 0,
    ALTER s_data SET STATISTICS 0;
