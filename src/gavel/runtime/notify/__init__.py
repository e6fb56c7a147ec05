"""Tells users' URLs and the site's command what happens to jobs. It only observes: nothing here decides about jobs."""
