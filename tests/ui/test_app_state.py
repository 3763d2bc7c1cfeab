from __future__ import annotations

import pytest

from pgherd.ui.study_forms import study_forms


def test_pages_carry_the_form_token(site):
    text = site.page(
        "start_form.html.j2", offer=study_forms()["database-size"], values={"scales": "", "predict": "", "time-budget": ""}, problem=""
    )
    assert site.policy.form_token.encode() in text.body


@pytest.mark.parametrize("token", ["", "wrong", "x" * 5000])
def test_forged_forms_are_refused(client, token):
    headers = {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/start/database-size", data={"form_token": token}, headers=headers)
    assert answer.status_code == 403 and "not from a page of this server" in answer.text


def test_files_and_many_fields_are_refused(client, site):
    headers = {"Origin": "http://127.0.0.1:8765", "Sec-Fetch-Site": "same-origin"}
    many = {f"field{i}": "" for i in range(200)} | {"form_token": site.policy.form_token}
    assert client.post("/start/database-size", data=many, headers=headers).status_code == 400
    assert (
        client.post("/start/database-size", files={"file": b"x"}, data={"form_token": site.policy.form_token}, headers=headers).status_code
        == 400
    )
