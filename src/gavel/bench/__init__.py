"""Generated problems, the textbook formulation to compare with, and the timing of one allocation."""
