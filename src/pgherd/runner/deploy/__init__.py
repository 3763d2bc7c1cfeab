"""What a trial wants to be up: servers, guests, pages, volumes and targets, and the cheapest way there."""
